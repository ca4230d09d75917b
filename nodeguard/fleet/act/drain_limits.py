"""Limits of drains: which candidates may begin now, in which order, and why the others wait. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.budget_limits import whole_nodes
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.drain import DrainLimits
from nodeguard.model.pod import PodGroupKey, PodKey

_HOUR = 3600.0

# A domain with a larger part of the fleet, such as a zone, would limit the drains of all nodes.
_MAX_DOMAIN = 0.25


class DrainUse(Struct, frozen=True):
    """What one drain uses of the limits."""

    uid: str
    """Of the Node."""
    parts: Mapping[str, frozenset[object]] = {}
    """Its pods, gangs and namespaces, by the names of their limits."""
    age: float = 0.0
    """Seconds since its begin, or else since its record."""


class DrainUsage(Struct, frozen=True):
    """What the drains of a fleet use of the limits. running: those that are not finished. recent: those by
    the policy that began within an hour.
    """

    running: tuple[DrainUse, ...] = ()
    recent: tuple[DrainUse, ...] = ()


def drain_use(
    uid: str, pods: Collection[PodKey], gangs: Collection[PodGroupKey], age: float = 0.0
) -> DrainUse:
    """Return what a drain of some pods uses. gangs: those of which all pods leave."""
    parts = {
        "pods": frozenset[object](pod.uid for pod in pods),
        "gangs": frozenset[object](gangs),
        "namespaces": frozenset[object](pod.namespace for pod in pods),
    }
    return DrainUse(uid, parts, age)


def drain_usage(actions: Iterable[NodeAction], age: Callable[[NodeAction], float]) -> DrainUsage:
    """Return what stored actions use. age: seconds since the begin of a drain, see DrainAges. A withdrawn
    drain that evicted nothing counts for nothing. One that an operator requested counts while it runs.
    """
    running, recent = list[DrainUse](), list[DrainUse]()
    for action in actions:
        if action.kind != ActionKind.DRAIN:
            continue
        is_recent = not action.requested_by and bool(action.begun_at or not action.state.is_finished)
        if is_recent or not action.state.is_finished:
            use = drain_use(action.uid, action.pods, action.pod_groups, age(action))
            if not action.state.is_finished:
                running.append(use)
            if is_recent and use.age < _HOUR:
                recent.append(use)
    return DrainUsage(tuple(running), tuple(recent))


def within_limits(
    candidates: Iterable[DrainCandidate],
    usage: DrainUsage,
    limits: DrainLimits,
    placements: Mapping[str, NodePlacement],
    domain_size: Callable[[str], int],
    use: Callable[[DrainCandidate], DrainUse] = lambda candidate: DrainUse(candidate.uid),
) -> list[DrainCandidate]:
    """Return the candidates in their order, those beyond a limit with the limit as their blocker.

    A candidate with a blocker of its own stays as it is and uses nothing. domain_size: returns the number of
    nodes of the budget of a failure domain. use: returns what a candidate would use; without it only nodes
    and drains count. The longest quarantine is first, so that the order never changes.
    """
    nodes = whole_nodes(limits.nodes, len(placements))
    largest = whole_nodes(_MAX_DOMAIN, len(placements))
    running = {drain.uid for drain in usage.running}
    domains = Counter(domain for uid in running if uid in placements for domain in placements[uid].domains)
    at_once = _Window(usage.running, "", "run", limits.at_once)
    in_an_hour = _Window(usage.recent, "PerHour", "began within an hour", limits.in_an_hour)
    admitted = []
    for candidate in sorted(candidates, key=lambda item: (item.since, item.node, item.resource)):
        placement = placements.get(candidate.uid)
        blocker, limited_for = candidate.blocker, 0.0
        if placement is None:
            blocker = blocker or "the node does not belong to the fleet"
        elif not blocker:
            small = [name for name in placement.domains if domain_size(name) <= largest]
            wanted = use(candidate)
            blocker, limited_for = _limit(
                candidate.uid, running, nodes, limits, small, domains, in_an_hour.uses
            )
            blocker = blocker or at_once.exceeded(wanted)
            if not blocker:
                blocker = in_an_hour.exceeded(wanted)
                limited_for = in_an_hour.wait(wanted) if blocker else 0.0
            if not blocker:
                at_once.add(wanted)
                in_an_hour.add(wanted)
                running.add(candidate.uid)
                domains.update(placement.domains)
        is_same = blocker == candidate.blocker
        admitted.append(
            candidate if is_same else replace(candidate, blocker=blocker, limited_for=limited_for)
        )
    return admitted


class _Window:
    """The drains that count for limits: those at a time, or those in an hour. suffix: of the keys of these
    limits. verb: what the drains do. limits: by the names of parts of a drain.
    """

    def __init__(self, uses: Iterable[DrainUse], suffix: str, verb: str, limits: Mapping[str, int]) -> None:
        self.uses = list(uses)
        self._suffix = suffix
        self._verb = verb
        self._limits = limits
        self._used = {name: set[object]() for name in limits}
        for use in self.uses:
            self._count(use)

    def add(self, use: DrainUse) -> None:
        """Count a further drain."""
        self.uses.append(use)
        self._count(use)

    def _count(self, use: DrainUse) -> None:
        for name, used in self._used.items():
            used.update(use.parts.get(name, ()))

    def exceeded(self, use: DrainUse) -> str:
        """Return the limit that a further drain would exceed; empty for none."""
        name, added = self._exceeded(use)
        if not name:
            return ""
        limit, own, used = self._limits[name], len(use.parts[name]), len(self._used[name])
        key = f"(drain.limits.{name}{self._suffix})"
        if own > limit:
            return f"its {own} {name} are more than the limit of {limit} {key}"
        return f"drains of {used} of {limit} {name} {self._verb}, and this one adds {added} {key}"

    def wait(self, use: DrainUse) -> float:
        """Return the seconds until enough of the drains of an hour are older, so that a further one fits the
        limit that it exceeds; 0 if it never does.
        """
        name, _ = self._exceeded(use)
        used = set(use.parts[name])
        if len(used) > self._limits[name]:
            return 0.0
        for recent in sorted(self.uses, key=lambda item: item.age):
            used |= recent.parts.get(name, frozenset())
            if len(used) > self._limits[name]:
                return _HOUR - recent.age
        return 0.0

    def _exceeded(self, use: DrainUse) -> tuple[str, int]:
        """Return the name of the first limit that a further drain would exceed, empty for none, and by how
        much it uses more of it.
        """
        for name, limit in self._limits.items():
            added = len(use.parts.get(name, frozenset()) - self._used[name])
            if added and len(self._used[name]) + added > limit:
                return name, added
        return "", 0


def earlier_drain_reason(
    uids: Collection[str],
    namespaces: Collection[str],
    own: NodeAction | None,
    others: Iterable[NodeAction],
    confirmed: Collection[str],
) -> str:
    """Return why a set waits for another drain, with which it shares pods of a gang, or may share a
    disruption budget; empty for none. Each of two sets may fit a budget that does not allow both.

    uids: of the pods of the set. namespaces: those in which a budget selects pods of the set; others do not
    matter. own: the recorded drain of the set; None for none. others: other drains that may still evict pods.
    Their pods are recorded without labels, so that each of a namespace counts. confirmed: keys of drains that
    may evict their first pod now.

    A drain that has begun or is confirmed is first, then the one that was recorded first: never both, as long
    as each set that is allowed to leave is confirmed before the next one asks.
    """

    def is_committed(drain: NodeAction | None) -> bool:
        return drain is not None and (bool(drain.begun_at) or drain.key in confirmed)

    for other in others:
        if own is not None and (other.uid, other.request) == (own.uid, own.request):
            continue  # two records of one drain are carried out one after the other
        is_earlier = own is None or (other.created_at, other.key) < (own.created_at, own.key)
        if not is_committed(other) and (is_committed(own) or not is_earlier):
            continue
        pods = sorted(pod for pod in other.pods if pod.uid in uids)
        if pods:
            return f"the drain of {other.node} is first: it evicts pod {pods[0]} too"
        shared = sorted({pod.namespace for pod in other.pods}.intersection(namespaces))
        if shared:
            budget = f"a PodDisruptionBudget of namespace {shared[0]}"
            return f"the drain of {other.node} is first: {budget} may select pods of both"
    return ""


def _limit(
    uid: str,
    running: Collection[str],
    nodes: int,
    limits: DrainLimits,
    domains: Iterable[str],
    used: Mapping[str, int],
    recent: Sequence[DrainUse],
) -> tuple[str, float]:
    """Return the limit of nodes or drains that a further drain would exceed, empty for none, and the seconds
    until that of an hour allows it.
    """
    if uid in running:
        return "another drain of the node is running", 0.0
    if len(running) >= nodes:
        return f"{len(running)} of {nodes} nodes are being drained (drain.limits.nodes)", 0.0
    if len(recent) >= limits.hourly:
        last = sorted(drain.age for drain in recent)[limits.hourly - 1]
        text = f"{len(recent)} of {limits.hourly} drains began within an hour (drain.limits.newPerHour)"
        return text, _HOUR - last
    for domain in domains:
        if used.get(domain, 0) >= limits.domain:
            name = domain.partition("/")[2]
            return f"another node of {name} is being drained (drain.limits.perDomain)", 0.0
    return "", 0.0
