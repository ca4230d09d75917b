"""The usage of every budget, counted from the records on Nodes and device rules. Independent of the planner's.

The usage counts each pending write together with what is observed: any write may be carried out first, or lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf

from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.mark import STATE_ANNOTATION, DegradedMark, Mark, MarkRecord
from nodeguard.model.node import Node
from nodeguard.model.policy import Budget, Policy

# A node in parts: an eighth is one GPU of eight.
_NODE, _GPU = 8, 1


@lru_cache(maxsize=4096)
def record_of(text: str) -> MarkRecord:
    """Return the record of an annotation."""
    return decode_record(text) or MarkRecord()


def node_record(node: Node) -> MarkRecord:
    """Return the record on a Node."""
    return record_of(node.annotations.get(STATE_ANNOTATION, ""))


def topologies_of(node: Node) -> set[str]:
    """Return the topologies of the domain marks on a Node."""
    return {mark.taint_value for mark in node_record(node).degraded}


def groups_of(node: Node, policy: Policy) -> Iterable[tuple[str, float]]:
    """Yield the groups of a node that have a budget, each with the share of its nodes."""
    labels = node.labels
    yield "fleet", policy.budget.fleet
    pool = next((pool for pool in policy.pools if pool.labels.items() <= labels.items()), None)
    share = (pool and pool.share) or policy.budget.pool
    yield f"pool {pool.name if pool else ''}", share
    for path in domains_of(node):
        yield path, policy.budget.domain


def domains_of(node: Node) -> tuple[str, ...]:
    """Return the failure domains of a node by its labels: leaf and pod, rack, and feed."""
    labels = node.labels
    pod = f"fabric/{labels['pod']}"
    return pod, f"{pod}/{labels['leaf']}", f"rack/{labels['rack']}", f"power/{labels['feed']}"


class BudgetCount:
    """The usage of the budgets, by name: nodes in parts of _NODE, checks in marks."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        records: Mapping[str, Iterable[MarkRecord]],
        rules: Iterable[DeviceRule],
        policy: Policy,
        now: float,
        confirmed: Container[str] = (),
    ) -> None:
        """records: all that may be on a Node after some of its writes, by uid. rules: likewise. confirmed: uids
        of nodes with a fault that the kernel log confirms.
        """
        self._confirmed = confirmed
        self.used: Counter[str] = Counter()
        self.limits: dict[str, float] = {}
        self._policy = policy
        devices: dict[str, dict[str, MarkRecord]] = defaultdict(dict)
        for rule in rules:
            devices[rule.uid][rule.name] = record_of(rule.state)
        sizes: Counter[str] = Counter()
        for uid, node in nodes.items():
            for group, _ in groups_of(node, policy):
                sizes[group] += 1
            if uid in records or uid in devices:
                self._count_node(node, tuple(records.get(uid, ())), devices.get(uid, {}), now)
        self._set_limits(sizes, nodes.values())

    def _count_node(
        self, node: Node, records: tuple[MarkRecord, ...], devices: Mapping[str, MarkRecord], now: float
    ) -> None:
        marks = {cause.mark for record in records for cause in record.causes}
        is_free = node.unschedulable and not any(record.cordoned for record in records)
        # A check has a budget of its own for the nodes that operators cordoned.
        apart = " under a cordon" if is_free else ""
        if not is_free:
            suspect = _NODE if Mark.SUSPECT in marks else 0
            quarantined = _NODE if Mark.QUARANTINE in marks else min(_NODE, _GPU * len(devices))
            for group, _ in groups_of(node, self._policy):
                self.used[f"{group} all"] += max(suspect, quarantined)
                self.used[f"{group} quarantined"] += quarantined
                if node.uid not in self._confirmed:
                    self.used[f"{group} unconfirmed"] += max(suspect, quarantined)
                    self.used[f"{group} unconfirmed quarantined"] += quarantined
                self.used[f"{group} suspect"] += suspect
        # A node and each of its devices have one charge of a check, and another one while a write is pending.
        carriers = [(None, record) for record in records] + list(devices.items())
        charges = {
            (carrier, charge.check, charge.at)
            for carrier, record in carriers
            if (charge := record.charge) is not None
        }
        for _, check in {(carrier, check) for carrier, check, _ in charges}:
            self.used[f"active {check}{apart}"] += 1
        limit = self._policy.budget.check
        for check, at in {(check, at) for _, check, at in charges}:
            if now - at < limit.within:
                count = sum(1 for _, *charge in charges if charge == [check, at])
                self.used[f"new {check}{apart}"] += count
        # A node counts once, whatever its record lists.
        past = {old.check for record in records for old in record.past_charges if now - old.at < limit.within}
        for check in past - {check for _, check, _ in charges}:
            self.used[f"new {check}{apart}"] += 1

    def _set_limits(self, sizes: Counter[str], nodes: Iterable[Node]) -> None:
        policy, check = self._policy, self._policy.budget.check
        shares = {group: share for node in nodes for group, share in groups_of(node, policy)}
        for group, share in shares.items():
            limit = max(1, int(share * sizes[group] + 1e-9))
            # Confirmed faults may use half of a domain.
            most = max(limit, sizes[group] // 2) if "/" in group else limit
            # A limit of one node counts suspect and quarantined nodes separately, each with its own limit.
            self.limits[f"{group} all"] = inf if limit == 1 else most * _NODE
            self.limits[f"{group} unconfirmed"] = inf if limit == 1 else limit * _NODE
            self.limits[f"{group} quarantined"] = most * _NODE
            self.limits[f"{group} unconfirmed quarantined"] = limit * _NODE
            self.limits[f"{group} suspect"] = limit * _NODE
        suspect = max(1, int(policy.budget.suspect * sizes["fleet"] + 1e-9)) * _NODE
        self.limits["fleet suspect"] = min(suspect, self.limits.get("fleet suspect", suspect))
        for key in self.used:
            if key.startswith("active "):
                self.limits[key] = check.active
            elif key.startswith("new "):
                self.limits[key] = check.new

    def excess(self, before: BudgetCount) -> str:
        """Return the budget that is exceeded by more than it was; empty for none."""
        for key, used in self.used.items():
            if used > max(self.limits[key], before.used[key]):
                return f"{key}: {used} of {self.limits[key]:g}, before {before.used[key]}"
        return ""


def degraded_marks(records: Mapping[str, Iterable[MarkRecord]]) -> dict[str, set[DegradedMark]]:
    """Return the marks of domains on each Node that may have one, by uid."""
    marks = {uid: {mark for record in of for mark in record.degraded} for uid, of in records.items()}
    return {uid: of for uid, of in marks.items() if of}


def domain_budget_excess(
    before: Mapping[str, tuple[MarkRecord, ...]],
    after: Mapping[str, tuple[MarkRecord, ...]],
    nodes: Mapping[str, Node],
    budget: Budget,
    wall: float,
) -> Iterator[tuple[str, str]]:
    """Yield what exceeds the budget of degraded domains, with the broken invariant.

    before, after: the records of Nodes by uid, with pending writes. wall: seconds since the epoch.
    """
    old, new = degraded_marks(before), degraded_marks(after)
    if not new or new.keys() <= old.keys():
        return
    limit = max(1, int(budget.degraded * len(nodes) + 1e-9))
    first = max(1, int(budget.first * len(nodes) + 1e-9))
    marked = {uid for uid in new if uid in nodes}
    domains = {mark.domain for marks in new.values() for mark in marks}
    within = min(
        (
            sum(1 for node in nodes.values() if domain in domains_of(node))
            for domain in domains
            if all(domain in domains_of(nodes[uid]) for uid in marked)
        ),
        default=None,
    )
    if len(marked) > limit and (within is None or within > first):
        detail = f"{len(marked)} of {limit} nodes, a first domain {first}, domains {sorted(domains)}"
        yield "no budget of degraded domains is exceeded", detail
    names = {mark.name or mark.domain: mark.since for marks in old.values() for mark in marks}
    added = {mark.name or mark.domain for marks in new.values() for mark in marks} - names.keys()
    recent = sum(1 for since in names.values() if wall - since < 3600.0)
    if added and recent + len(added) > budget.domains:
        detail = f"{recent} and {sorted(added)} of {budget.domains}"
        yield "no more new degraded domains in an hour than their budget", detail
