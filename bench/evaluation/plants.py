"""Planted causes: one function for each kind of shared fault, bad start and maintenance. Pure.

A function returns the plant of a kind in a world without it; None if the fleet has no domain for it. Shares
and speeds are assumed: dead hardware shows on nearly all members within seconds, heat and bad links on 20 to
100%.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from bench.evaluation.background import maintenance
from bench.evaluation.check_plants import plant_false_alarms, plant_few_nodes
from bench.evaluation.fleets import log_uniform
from bench.evaluation.plant_times import end_of_faults, receipt_times, start_of_cause
from bench.evaluation.symptoms import SILENT_CHECK
from bench.evaluation.world import (
    Background,
    Cause,
    CauseKind,
    JobStart,
    NodeFault,
    Path,
    Plant,
    VersionChange,
)

_MINUTE, _HOUR = 60.0, 3600.0

# Fewer members are no domain for the product either.
_FEWEST = 3

# A domain has at most this share of the fleet: a fault of more nodes is one of the whole fleet.
_MOST = 0.75

# Seconds that a fault lasts on a member: one of these.
_DURATIONS = (_HOUR, 2 * _HOUR, 4 * _HOUR)

MakePlant = Callable[[Background, Random], Plant | None]


def _domains(background: Background, topology: str, depth: int) -> list[Path]:
    """Return the domains that may fail: with enough members, most of them labelled, and other nodes."""
    fleet = background.fleet
    return [
        path
        for path in fleet.domains_at(topology, depth)
        if _FEWEST <= len(fleet.true[path]) <= _MOST * fleet.size
        and len(set(fleet.labelled.get(path, ())).intersection(fleet.true[path]))
        >= max(_FEWEST, len(fleet.true[path]) / 2)
    ]


class _Course:
    """How a fault shows on the members of a domain."""

    def __init__(self, symptom: str, share: tuple[float, float], spread: tuple[float, float]) -> None:
        """share: of the members, from and to. spread: seconds of the onsets, from and to."""
        self._symptom, self._share, self._spread = symptom, share, spread

    def plant(
        self, kind: CauseKind, name: str, members: Sequence[int], start: float, chance: Random
    ) -> tuple[Cause, list[NodeFault]]:
        """Return the cause, and the faults of its members."""
        share, spread = chance.uniform(*self._share), log_uniform(*self._spread, chance)
        duration = chance.choice(_DURATIONS)
        nodes = chance.sample(members, min(len(members), max(_FEWEST, round(share * len(members)))))
        faults = [
            NodeFault(
                node=node,
                symptom=self._symptom,
                onset=(onset := start + chance.uniform(0.0, spread)),
                end=onset + duration,
                cause=name,
                is_real=self._symptom not in {"node-down", "unreachable"},
            )
            for node in sorted(nodes)
        ]
        cause = Cause(
            kind=kind, name=name, symptom=self._symptom, members=tuple(members), start=start,
            end=end_of_faults(faults), share=share, spread=spread,
        )  # fmt: skip
        return cause, faults


class _Flapping(_Course):
    """Members lose their links briefly, again and again."""

    def __init__(self, minutes: tuple[float, float], flaps: tuple[float, float]) -> None:
        """minutes: of the fault, from and to. flaps: mean of each member in this time, from and to."""
        super().__init__("port-flap", (0.3, 1.0), (minutes[0] * _MINUTE, minutes[1] * _MINUTE))
        self._flaps = flaps

    def plant(
        self, kind: CauseKind, name: str, members: Sequence[int], start: float, chance: Random
    ) -> tuple[Cause, list[NodeFault]]:
        """See _Course."""
        share, duration = chance.uniform(*self._share), log_uniform(*self._spread, chance)
        mean = duration / chance.uniform(*self._flaps)
        faults = list[NodeFault]()
        for node in chance.sample(members, max(_FEWEST, round(share * len(members)))):
            at = start
            while (at := at + chance.expovariate(1 / mean)) < start + duration:
                faults.append(
                    NodeFault(node=node, symptom="port-flap", onset=at, end=start + duration, cause=name)
                )
        cause = Cause(
            kind=kind, name=name, symptom="port-flap", members=tuple(members),
            start=start, end=start + duration, share=share, spread=mean, onsets="exponential",
        )  # fmt: skip
        return cause, faults


def _domain_fault(kind: str, topology: str, depth: int, course: _Course) -> MakePlant:
    """One domain fails."""

    def make(background: Background, chance: Random) -> Plant | None:
        paths = _domains(background, topology, depth)
        return _fail(kind, background, [chance.choice(paths)], course, chance) if paths else None

    return make


def _fail(
    kind: str, background: Background, paths: Sequence[Path], course: _Course, chance: Random
) -> Plant | None:
    """Return the plant of some domains that fail together; None if no member shows it."""
    start = start_of_cause(background, chance)
    causes, faults = list[Cause](), list[NodeFault]()
    for path in paths:
        cause, own = course.plant("domain", path, background.fleet.true[path], start, chance)
        if len({fault.node for fault in own}) < _FEWEST:
            return None
        causes.append(cause)
        faults += own
    return Plant(kind=kind, causes=tuple(causes), faults=tuple(faults), start=start)


def _leaves_of_a_pod(background: Background, chance: Random) -> Plant | None:
    """Two leaves of a pod fail, which has others."""
    by_pod = _leaves_by_pod(background)
    pods = [
        pod
        for pod, leaves in by_pod.items()
        if len(leaves) >= 2 and sum(path.startswith(f"{pod}/") for path in background.fleet.true) > 2
    ]
    if not pods:
        return None
    paths = chance.sample(by_pod[chance.choice(pods)], 2)
    return _fail("two leaves of a pod", background, paths, _DEAD, chance)


def _leaves_of_pods(kind: str, count: int) -> MakePlant:
    """One leaf in each of some pods fails."""

    def make(background: Background, chance: Random) -> Plant | None:
        by_pod = _leaves_by_pod(background)
        if len(by_pod) < count:
            return None
        paths = [chance.choice(by_pod[pod]) for pod in chance.sample(sorted(by_pod), count)]
        if sum(len(background.fleet.true[path]) for path in paths) > _MOST * background.fleet.size:
            return None
        return _fail(kind, background, paths, _DEAD, chance)

    return make


def _leaves_by_pod(background: Background) -> dict[Path, list[Path]]:
    by_pod: dict[Path, list[Path]] = {}
    for path in _domains(background, "fabric", 2):
        by_pod.setdefault(path.rpartition("/")[0], []).append(path)
    return by_pod


def _observer(background: Background, chance: Random) -> Plant | None:
    """The aggregator loses its connections to most agents, at random."""
    start, members = start_of_cause(background, chance), range(background.fleet.size)
    cause, faults = _Course("unreachable", (0.6, 1.0), (1.0, 30.0)).plant(
        "observer", SILENT_CHECK, members, start, chance
    )
    return Plant(kind="observer partition", causes=(cause,), faults=tuple(faults), start=start)


def _job(background: Background, chance: Random) -> Plant | None:
    """A gang starts badly, one to five times: some of its nodes lose a link at each start."""
    start, size = start_of_cause(background, chance), background.fleet.size
    count = round(log_uniform(8, max(8, min(512, size // 2)), chance))
    first = chance.randrange(size - count + 1)
    nodes = range(first, first + count) if chance.random() < 0.7 else chance.sample(range(size), count)
    share, job = log_uniform(0.05, 0.5, chance), "training/crash-loop"
    at, error = start, chance.gauss(0.0, 5.0)
    faults, starts = list[NodeFault](), list[JobStart]()
    for _ in range(chance.randint(1, 5)):
        starts.append(JobStart(job, at, at + error, tuple(nodes)))
        failing = chance.sample(nodes, max(_FEWEST, round(share * count)))
        faults += [
            NodeFault(
                node=node, symptom="port-flap", onset=at + chance.uniform(0.0, 60.0), end=at + 61.0,
                cause=job, is_real=False,
            )
            for node in failing
        ]  # fmt: skip
        at += chance.uniform(5.0, 20.0) * _MINUTE
    cause = Cause(
        kind="job", name=job, symptom="port-flap", members=tuple(nodes), start=start,
        end=end_of_faults(faults), share=share, spread=60.0,
    )  # fmt: skip
    return Plant(
        kind="bad job start", causes=(cause,), faults=tuple(faults), starts=tuple(starts), start=start
    )


def _version(background: Background, chance: Random) -> Plant | None:
    """An announced upgrade of the driver after which some of the nodes have a fault."""
    start, size = start_of_cause(background, chance), background.fleet.size
    count = round(log_uniform(max(8, 0.1 * size), size, chance))
    received = receipt_times(
        chance.sample(range(size), count), start, log_uniform(10 * _MINUTE, 2 * _HOUR, chance), chance
    )
    share, version = log_uniform(0.02, 1.0, chance), "driver/580.95.06"
    failing = chance.sample(list(received), max(_FEWEST, round(share * count)))
    faults = [
        NodeFault(
            node=node, symptom="library-mismatch", onset=received[node] + chance.uniform(0.0, _MINUTE),
            end=background.until + _HOUR, cause=version,
        )
        for node in failing
    ]  # fmt: skip
    cause = Cause(
        kind="version", name=version, symptom="library-mismatch", members=tuple(received),
        start=start, end=end_of_faults(faults), share=share, spread=60.0,
    )  # fmt: skip
    return Plant(
        kind="version",
        causes=(cause,),
        faults=tuple(faults),
        versions=tuple(VersionChange(at, node, version) for node, at in received.items()),
        start=start,
    )


def _firmware(background: Background, chance: Random) -> Plant | None:
    """The switches of a pod receive new firmware, leaf after leaf, without an announcement."""
    by_pod = {pod: leaves for pod, leaves in _leaves_by_pod(background).items() if len(leaves) >= 3}
    if not by_pod:
        return None
    leaves = by_pod[chance.choice(sorted(by_pod))][:8]
    at = start = start_of_cause(background, chance)
    causes, faults = list[Cause](), list[NodeFault]()
    for path in leaves:
        lasts, members = chance.uniform(2.0, 10.0) * _MINUTE, background.fleet.true[path]
        own = [
            NodeFault(
                node=node, symptom="port-down", onset=at + chance.uniform(0.0, 5.0), end=at + lasts,
                cause=path,
            )
            for node in members
        ]  # fmt: skip
        causes.append(
            Cause(
                kind="domain", name=path, symptom="port-down", members=members,
                start=at, end=end_of_faults(own), share=1.0, spread=5.0,
            )
        )  # fmt: skip
        faults += own
        at += lasts + chance.uniform(1.0, 15.0) * _MINUTE
    return Plant(kind="switch firmware", causes=tuple(causes), faults=tuple(faults), start=start)


def _maintenance(background: Background, chance: Random) -> Plant | None:
    """Operators maintain a leaf or rack behind cordons; the aggregator restarts within two hours after it."""
    fleet, start = background.fleet, start_of_cause(background, chance)
    paths = [*_domains(background, "fabric", 2), *_domains(background, "rack", 2)]
    if not paths:
        return None
    changes, faults = maintenance(fleet, chance.choice(paths), start, chance)
    end = max(change.at for change in changes)
    return Plant(
        kind="maintenance and restart",
        changes=tuple(changes),
        faults=tuple(faults),
        aggregator_restart=min(end + chance.uniform(0.0, 2 * _HOUR), background.until - 20 * _MINUTE),
        start=start,
    )


def _nothing(background: Background, _: Random) -> Plant | None:
    """Usual faults only."""
    return Plant(kind="nothing", start=background.before)


_DEAD = _Course("port-down", (0.9, 1.0), (1.0, 10.0))

KINDS: Mapping[str, MakePlant] = {
    "leaf dead": _domain_fault("leaf dead", "fabric", 2, _DEAD),
    "leaf partial": _domain_fault(
        "leaf partial", "fabric", 2, _Course("port-down", (0.2, 0.6), (10.0, 5 * _MINUTE))
    ),
    "leaf degraded": _domain_fault("leaf degraded", "fabric", 2, _Flapping((10.0, 120.0), (1.0, 4.0))),
    "pod degraded": _domain_fault("pod degraded", "fabric", 1, _Flapping((10.0, 60.0), (0.4, 2.0))),
    "two leaves of a pod": _leaves_of_a_pod,
    "leaves of two pods": _leaves_of_pods("leaves of two pods", 2),
    "leaves of three pods": _leaves_of_pods("leaves of three pods", 3),
    "rack power": _domain_fault("rack power", "power", 2, _Course("node-down", (0.8, 1.0), (1.0, 10.0))),
    "power feed": _domain_fault("power feed", "power", 1, _Course("node-down", (0.5, 1.0), (1.0, 10.0))),
    "pod management network": _domain_fault(
        "pod management network", "fabric", 1, _Course("unreachable", (0.6, 1.0), (1.0, 30.0))
    ),
    "rack cooling": _domain_fault(
        "rack cooling", "rack", 2, _Course("throttled", (0.3, 1.0), (5 * _MINUTE, _HOUR))
    ),
    "row cooling": _domain_fault(
        "row cooling", "rack", 1, _Course("throttled", (0.2, 1.0), (5 * _MINUTE, _HOUR))
    ),
    "NVLink domain": _domain_fault(
        "NVLink domain", "nvlink", 1, _Course("nvlink-down", (0.5, 1.0), (5.0, 60.0))
    ),
    "observer partition": _observer,
    "bad job start": _job,
    "version": _version,
    "false alarms": plant_false_alarms,
    "few nodes": plant_few_nodes,
    "switch firmware": _firmware,
    "maintenance and restart": _maintenance,
    "nothing": _nothing,
}
