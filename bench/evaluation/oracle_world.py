"""The oracle of a drawn world: usual rates, causes that may explain the votes, and what is decided. Pure.

The oracle knows the parameters of the world: rates and how much domains differ in them, delays, and share and
spread of the planted cause; of other kinds it knows the distribution of these. Of the nodes it knows what the
product does: their labels as they are, with errors, and the votes that have been reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from math import exp, expm1, inf

from msgspec import Struct
from msgspec.structs import replace

from bench.evaluation.check_plants import FALSE_CHECKS, FEW_NODES
from bench.evaluation.observed import operator_changes
from bench.evaluation.oracle import Causes, Posterior, posterior
from bench.evaluation.oracle_courses import (
    FLAP_CHECK,
    Course,
    by_spread,
    check_of,
    delays_of,
    drawn_courses,
    job_delays_of,
    shown_share,
)
from bench.evaluation.oracle_model import (
    CandidateCause,
    Explanation,
    NodeVote,
    Observed,
    UsualVotes,
)
from bench.evaluation.plants import KINDS
from bench.evaluation.symptoms import SILENT_CHECK
from bench.evaluation.world import Cause, Fleet, JobStart, Path, World

_DAY = 86_400.0

# Shared causes of one node in a day: the sum of the rates in nodeguard/simulate/random_faults.py. They are as
# rare in reality, although most episodes have one.
_SHARED_CAUSES = 0.22 / 7500

# Votes of one node in a day for a check that usually has none.
_LEAST_RATE = 1e-6

# Share of the usual times without an agent that last long enough to count as stale: about 40 s, of times with
# a uniform logarithm from 10 to 300 s.
_STALE_SHARE = 0.59

# Usual flaps at the start of a gang, as drawn in `background.py`: the mean share of its nodes, the nodes
# with as much weight, and the seconds within which they flap. A bad start has a larger share.
_GANG_FLAPS, _GANG_SECONDS = (0.025, 40.0), 120.0

# Flaps of nodes with a bad cable, and share of these nodes, as in `background.py`.
_OF_BAD_CABLES, _BAD_CABLES = 0.5, 0.002

_RATES_OF_CHECKS: Mapping[str, tuple[str, ...]] = {
    "port-down": ("port-down",),
    "nvlink-down": ("nvlink-down",),
    "gpu-thermal-slowdown": ("throttled",),
    "nic-firmware-dead": ("adapter-dead",),
}


class Target(Struct, frozen=True):
    """Causes that begin together and have to be diagnosed as one; others: nodes of the other causes."""

    causes: tuple[Cause, ...]
    others: frozenset[int]


class WorldOracle:
    """The oracle of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._background = world.background
        self._fleet = world.background.fleet
        self._levels: dict[tuple[str, int, frozenset[int]], _Level] = {}
        self._explained: dict[tuple[float, frozenset[int]], list[Explanation]] = {}

    def decides(self, index: int, within: float) -> bool:
        """Return whether the votes decide a planted cause within so many seconds of its start. index: of the
        cause in the plant.
        """
        cause = self._world.plant.causes[index]
        target = next(target for target in self.targets if cause in target.causes)
        until = min(cause.start + within, self._background.until)
        truth = self.truth(target, until)
        return bool(truth) and self.posterior(until, target.others).decides(truth)

    @cached_property
    def targets(self) -> list[Target]:
        """Return the planted causes, those that begin together as one."""
        causes = self._world.plant.causes
        every = frozenset(node for cause in causes for node in cause.members)
        targets = []
        for _, group in groupby(causes, key=lambda cause: cause.start):
            together = tuple(group)
            own = {node for cause in together for node in cause.members}
            targets.append(Target(together, every - own))
        return targets

    def truth(self, target: Target, until: float) -> Causes:
        """Return the causes of a target as the oracle names them; empty if the labels do not show them."""
        names = {cause.name for cause in target.causes}
        candidates = [
            (explanation.group, candidate)
            for explanation in self._explanations(until, target.others)
            for candidate in explanation.candidates
            if candidate.name in names and explanation.check == check_of(target.causes[0])
        ]
        found = frozenset((group, candidate.members) for group, candidate in candidates)
        return found if len({candidate.name for _, candidate in candidates}) == len(names) else frozenset()

    def posterior(self, until: float, others: frozenset[int] = frozenset()) -> Posterior:
        """Return the probability of each cause by the votes until a time. others: nodes that do not count."""
        votes = self._votes(until, others)
        expected = _SHARED_CAUSES * self._fleet.size * until / _DAY
        observed = Observed(0.0, until, votes)
        return posterior(observed, self._usual, self._explanations(until, others), exp(-expected))

    def _votes(self, until: float, others: frozenset[int]) -> dict[str, dict[int, list[NodeVote]]]:
        """Return the votes that are reported by a time, of nodes that may vote."""
        excluded = self._excluded(until) | others
        votes: dict[str, dict[int, list[NodeVote]]] = defaultdict(lambda: defaultdict(list))
        for vote in self._world.votes:
            if vote.reported > until:
                break
            if vote.node in excluded or any(
                begin <= vote.onset < end for begin, end in self._cordons.get(vote.node, ())
            ):
                continue
            of_node = votes[vote.check][vote.node]
            if vote.check != FLAP_CHECK:
                of_node.append(NodeVote(vote.onset, vote.cleared))
            elif not of_node:
                # A lost link shows for a day. The end of a lasting one says nothing of flaps.
                surge = self._surge(vote.node, vote.onset) if vote.symptom == "port-flap" else inf
                of_node.append(NodeVote(vote.onset, inf, surge))
        return votes

    def _excluded(self, until: float) -> frozenset[int]:
        """Return the nodes without an agent, and those with an operator's cordon at a time."""
        cordoned = {node for node, spans in self._cordons.items() if any(a <= until < b for a, b in spans)}
        return self._fleet.muted | cordoned

    @cached_property
    def _cordons(self) -> Mapping[int, Sequence[tuple[float, float]]]:
        """Return the times of the cordons of each node."""
        spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for change in operator_changes(self._background, self._world.plant):
            of_node = spans[change.node]
            if of_node and of_node[-1][1] == inf:
                of_node[-1] = (of_node[-1][0], change.at)
            if change.unschedulable:
                of_node.append((change.at, inf))
        return spans

    def _surge(self, node: int, onset: float) -> float:
        """Return the flaps of a node a second at the starts of gangs."""
        starts = sum(0.0 <= onset - start.at <= _GANG_SECONDS for start in self._starts.get(node, ()))
        return starts * self._gang_share / _GANG_SECONDS if starts else 0.0

    @cached_property
    def _gang_share(self) -> float:
        """Return the share of the nodes of a gang that usually flap at its start: of the usual starts of the
        world, as it is no parameter of the background.
        """
        onsets: dict[int, list[float]] = defaultdict(list)
        for fault in self._background.faults:
            if fault.symptom == "port-flap":
                onsets[fault.node].append(fault.onset)
        mean, nodes = _GANG_FLAPS
        flaps = mean * nodes
        for start in self._background.starts:
            nodes += len(start.nodes)
            flaps += sum(
                any(0.0 <= onset - start.at <= _GANG_SECONDS for onset in onsets[node])
                for node in onsets.keys() & set(start.nodes)
            )
        return flaps / nodes

    @cached_property
    def _starts(self) -> Mapping[int, Sequence[JobStart]]:
        """Return the starts of jobs of each node."""
        starts: dict[int, list[JobStart]] = defaultdict(list)
        for start in (*self._background.starts, *self._world.plant.starts):
            for node in start.nodes:
                starts[node].append(start)
        return starts

    @cached_property
    def _usual(self) -> Mapping[str, UsualVotes]:
        """Return the usual votes of each check."""
        rates, size, until = self._background.rates, self._fleet.size, self._background.until
        usual = defaultdict(lambda: UsualVotes(_LEAST_RATE / _DAY))
        for check, (symptom, *_) in _RATES_OF_CHECKS.items():
            usual[check] = UsualVotes(
                max(_LEAST_RATE, rates[symptom].daily) / _DAY, self._clusters(symptom), rates[symptom].shape
            )
        silent = rates["node-down"].daily + _STALE_SHARE * rates["unreachable"].daily
        usual[SILENT_CHECK] = UsualVotes(silent / _DAY)
        flaps = rates["port-flap"].daily / _DAY
        cables = max(1, round(_BAD_CABLES * size))
        of_cables = cables / size * -expm1(-flaps * _OF_BAD_CABLES * size / cables * until) / until
        usual[FLAP_CHECK] = UsualVotes(
            flaps * (1.0 - _OF_BAD_CABLES) + of_cables, self._clusters("port-flap"), rates["port-flap"].shape
        )
        return usual

    def _clusters(self, symptom: str) -> tuple[frozenset[int], ...]:
        return tuple(frozenset(self._fleet.true[path]) for path in self._background.rates[symptom].factors)

    def _explanations(self, until: float, others: frozenset[int]) -> list[Explanation]:
        """Return the causes that may explain the votes until a time: of each kind with equal probability."""
        if (until, others) not in self._explained:
            self._explained[until, others] = self._new_explanations(until, others)
        return self._explained[until, others]

    def _new_explanations(self, until: float, others: frozenset[int]) -> list[Explanation]:
        excluded = self._excluded(until) | others
        prior = -expm1(-_SHARED_CAUSES * self._fleet.size * until / _DAY) / len(KINDS)
        explanations: list[Explanation] = []
        for kind in KINDS:
            if kind == "few nodes":
                explanations += self._of_few_nodes(prior, excluded, until)
                continue
            is_planted = kind == self._world.plant.kind
            courses = [Course(self._world.plant.causes)] if is_planted else drawn_courses(kind)
            courses = [course for course in courses if course.causes]
            if not courses:
                continue
            groups = [courses] if is_planted else by_spread(courses)
            for group in groups:
                explanations += self._of_courses(kind, group, prior / len(groups), excluded, until)
        return explanations

    def _of_courses(
        self, kind: str, courses: Sequence[Course], prior: float, excluded: frozenset[int], until: float
    ) -> Iterator[Explanation]:
        """Yield the explanations by causes of one kind with similar spreads."""
        first = courses[0].causes[0]
        shown = [cause for course in courses for cause in course.causes]
        onsets = sorted({(item.symptom, item.spread, item.onsets, item.end - item.start) for item in shown})
        onset, report = delays_of(tuple(onsets), self._background.delay)
        shares = tuple(sorted({shown_share(cause) for cause in shown}))
        shares = shares[:: max(1, len(shares) // 3)]
        if first.kind == "domain":
            count = len(courses[0].causes) if courses[0].is_together else 1
            parents = {_parent(cause.name) for cause in courses[0].causes}
            level = self._level(first.name.partition("/")[0], first.name.count("/"), excluded)
            yield Explanation(
                name=kind, group="domain", check=check_of(first), prior=prior, onset=onset, report=report,
                shares=tuple(share * (1.0 - level.mislabelled) for share in shares),
                candidates=level.domains, count=count,
                parents="any" if count == 1 else "one" if len(parents) == 1 else "different",
                unlabelled=level.unlabelled, mislabelled=level.mislabelled, nodes=self._fleet.size,
            )  # fmt: skip
        elif first.kind in {"check", "observer"}:
            # It knows as little which check has false alarms as it knows which domain fails.
            checks = FALSE_CHECKS if first.kind == "check" else (check_of(first),)
            members = frozenset(range(self._fleet.size)) - excluded
            for check in checks:
                yield Explanation(
                    name=kind, group=f"check {check}", check=check, prior=prior / len(checks), onset=onset,
                    report=report, shares=shares, candidates=(CandidateCause(check, members),),
                )  # fmt: skip
        elif first.kind == "version":
            received: dict[Path, dict[int, float]] = defaultdict(dict)
            for change in self._world.plant.versions:
                if change.at <= until and change.node not in excluded:
                    received[change.version][change.node] = change.at
            candidates = tuple(
                CandidateCause(version, frozenset(nodes), starts=nodes) for version, nodes in received.items()
            )
            yield Explanation(
                name=kind, group="version", check=check_of(first), prior=prior, onset=onset, report=report,
                shares=shares, candidates=candidates,
            )  # fmt: skip
        elif first.kind == "job":
            yield from self._of_jobs(kind, shares, prior, excluded, until)

    def _of_few_nodes(self, prior: float, excluded: frozenset[int], until: float) -> Iterator[Explanation]:
        """Yield the explanations by few nodes that break together: as false alarms of so many nodes."""
        least, most = FEW_NODES
        shares = tuple(count / self._fleet.size for count in range(least, most + 1))
        groups = by_spread(drawn_courses("false alarms"))
        for group in groups:
            for item in self._of_courses("few nodes", group, prior / len(groups), excluded, until):
                name = f"nodes with {item.check}"
                nodes = (CandidateCause(name, item.candidates[0].members),)
                yield replace(item, group=name, shares=shares, candidates=nodes)

    def _of_jobs(
        self, kind: str, shares: Sequence[float], prior: float, excluded: frozenset[int], until: float
    ) -> Iterator[Explanation]:
        """Yield an explanation by each job that has started, once or repeatedly."""
        jobs: dict[str, list[JobStart]] = defaultdict(list)
        for start in (*self._background.starts, *self._world.plant.starts):
            if start.at <= until:
                jobs[start.job].append(start)
        for job, starts in jobs.items():
            first = starts[0].at
            delays = tuple(start.at - first for start in starts)
            onset, report = job_delays_of(delays, self._background.delay)
            members = frozenset(starts[0].nodes) - excluded
            yield Explanation(
                name=kind, group="job", check=FLAP_CHECK, prior=prior / len(jobs), onset=onset,
                report=report, shares=tuple(1.0 - (1.0 - share) ** len(starts) for share in shares),
                candidates=(CandidateCause(job, members, starts=dict.fromkeys(members, first)),),
            )  # fmt: skip

    def _level(self, topology: str, depth: int, excluded: frozenset[int]) -> _Level:
        """Return the domains of a level, by the labels: those that are real and may have a planted cause."""
        key = topology, depth, excluded
        if key not in self._levels:
            self._levels[key] = _level(self._fleet, topology, depth, excluded)
        return self._levels[key]


class _Level(Struct, frozen=True):
    """The domains of a level. unlabelled: nodes in none of them by their labels. mislabelled: share of the
    others with the label of a wrong one.
    """

    domains: tuple[CandidateCause, ...]
    unlabelled: frozenset[int]
    mislabelled: float


def _level(fleet: Fleet, topology: str, depth: int, excluded: frozenset[int]) -> _Level:
    candidates, labelled, right = list[CandidateCause](), set[int](), 0
    for path in fleet.domains_at(topology, depth):
        members = frozenset(fleet.labelled.get(path, ())) - excluded
        if members and _FEWEST <= len(fleet.true[path]) <= _MOST * fleet.size:
            candidates.append(CandidateCause(path, members, _parent(path)))
            labelled |= members
            right += len(members.intersection(fleet.true[path]))
    unlabelled = frozenset(range(fleet.size)) - labelled - excluded
    return _Level(tuple(candidates), unlabelled, 1.0 - right / max(1, len(labelled)))


# Domains with fewer nodes, or with a larger share of the fleet, have no planted cause: see `plants.py`.
_FEWEST, _MOST = 3, 0.75


def _parent(path: Path) -> Path:
    return path.rpartition("/")[0]
