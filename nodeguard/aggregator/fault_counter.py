"""Counts of faults, false alarms and GPU-seconds out, for the time that this aggregator is active.

The metrics of nodeguard report: the sums of both replicas are those of the fleet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from nodeguard.aggregator.metric_families import CheckLabels
from nodeguard.fleet.decide.mark_requests import resource_of
from nodeguard.fleet.incidents.tracker import SHARED
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.gpu_shares import gpu_shares
from nodeguard.model.device import device_mark_name
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import Mark
from nodeguard.model.target import target_kind
from nodeguard.pipeline.new_series import NewSeries

# Seconds between two measurements, and the longest time that one stands for: the history calls a longer one a
# gap.
_INTERVAL = 10.0
_GAP = 180.0

# Combinations of labels, and domains, with series of their own: each combination has a histogram.
_MAX_COMBINATIONS = 300
_MAX_DOMAINS = 100
_OTHER = "other"


class FaultLabels(NamedTuple):
    """The labels of a fault. part: kind of the target that failed. domain: path of a degraded domain, empty
    for a fault of one node, as `part` is for a domain.
    """

    check: str
    domain: str
    part: str
    action: str


_OTHERS = FaultLabels(_OTHER, _OTHER, _OTHER, _OTHER)


_Key = TypeVar("_Key", FaultLabels, str)


class _OpenFault(NamedTuple):
    """A fault that lasts. began: seconds since the epoch."""

    labels: FaultLabels
    began: float


class _ActiveMark(NamedTuple):
    """See gpu_shares."""

    carrier: str
    mark: Mark
    began: float
    check: str
    labels: FaultLabels


class FaultCounter:
    """Counts while this aggregator is active. Injected faults do not count.

    faults: that began. false_alarms: that operators recorded, by check. Both have a new key as 0 first: see
    NewSeries. gpu_seconds_out: by labels, and whether only gang work is kept away. node_seconds: of nodes
    with an agent that reports; gpu_seconds: of all GPUs.

    on_new_labels: receives the labels of a fault that has begun, once. on_repaired: receives the labels of a
    fault that ended, and the seconds since its begin; after on_new_labels with the delay of NewSeries.
    """

    def __init__(
        self,
        *,
        on_new_labels: Callable[[FaultLabels], object] = lambda _: None,
        on_repaired: Callable[[FaultLabels, float], object] = lambda *_: None,
    ) -> None:
        self.faults: Counter[FaultLabels] = Counter()
        self.false_alarms: Counter[str] = Counter()
        self.gpu_seconds_out: dict[tuple[FaultLabels, bool], float] = {}
        self.node_seconds = 0.0
        self.gpu_seconds = 0.0
        self._on_new_labels, self._on_repaired = on_new_labels, on_repaired
        self._series = NewSeries()
        self._checks = CheckLabels()
        self._domains: set[str] = set()
        self._combinations: set[FaultLabels] = set()
        # None while this aggregator is not active.
        self._open: dict[str, _OpenFault] | None = None
        self._statements: set[str] | None = None
        self._measured_at = float("-inf")
        self._shares: Counter[tuple[FaultLabels, bool]] = Counter()
        self._nodes = self._gpus = 0

    def plan_made(
        self,
        planner: Planner,
        plan: Plan,
        decisions: Callable[[], Mapping[str, OperatorDecision]],
        now: Instant,
        *,
        acts: bool,
    ) -> None:
        """Count the changes since the last call. acts: whether this aggregator applies the plan; the counts
        begin with the first plan that it applies. decisions: returns those of operators, by incident.
        """
        self._series.count_delayed(now)
        if not acts:
            self._open = self._statements = None
            return
        if self._open is None:
            self._open = {
                incident.name: self._fault(planner, incident, now)
                for incident in planner.all_incidents()
                if incident.is_open and incident.is_fault and not incident.injected
            }
            self._measured_at = float("-inf")
        else:
            self._count_faults(planner, plan, self._open, now)
        if now.mono - self._measured_at >= _INTERVAL:
            self._measure(planner, self._open, now)
            self._count_false_alarms(planner, decisions(), now)

    def _count_faults(
        self, planner: Planner, plan: Plan, faults: dict[str, _OpenFault], now: Instant
    ) -> None:
        for incident in plan.incidents:
            before = faults.get(incident.name)
            if not incident.is_open and before is not None:
                del faults[incident.name]
                self._count_repair(before, incident, now)
            elif incident.is_open and before is None and incident.is_fault and not incident.injected:
                fault = faults[incident.name] = self._fault(planner, incident, now)
                self._count(self.faults, fault.labels, now)
        # Faults that ended within their grace period.
        for incident in plan.transient_incidents:
            if incident.is_fault and not incident.injected:
                fault = self._fault(planner, incident, now)
                self._count(self.faults, fault.labels, now)
                self._count_repair(fault, incident, now)

    def _count(self, counts: Counter[_Key], key: _Key, now: Instant) -> None:
        """Add 1 to a count, or 0 until the delay of a new series has passed."""
        counts.setdefault(key, 0)
        self._series.count(key, lambda: counts.update((key,)), now)

    def _count_repair(self, fault: _OpenFault, incident: Incident, now: Instant) -> None:
        seconds = max(0.0, incident.resolved_at - fault.began)
        self._series.count(fault.labels, lambda: self._on_repaired(fault.labels, seconds), now)

    def _count_false_alarms(
        self, planner: Planner, decisions: Mapping[str, OperatorDecision], now: Instant
    ) -> None:
        statements = {name for name, decision in decisions.items() if decision.is_false_alarm}
        withdrawn = {name for name, decision in decisions.items() if decision.false_alarm} - statements
        before = self._statements
        # A repeated statement is about the same occurrence, also after it was withdrawn: one that begins
        # removes the statement.
        self._statements = statements | (withdrawn & (before or set()))
        for name in sorted(statements - before) if before is not None else ():
            incident = planner.incident(name)
            if incident is not None and not incident.injected:
                check = self._checks.label(incident.cause, planner.state.checks.catalogue)
                self._series.create(check, now)
                self._count(self.false_alarms, check, now)

    def _measure(self, planner: Planner, faults: Mapping[str, _OpenFault], now: Instant) -> None:
        """Add the time since the last measurement as it was measured then, and measure again."""
        seconds, self._measured_at = now.mono - self._measured_at, now.mono
        if seconds <= _GAP:
            self.node_seconds += self._nodes * seconds
            self.gpu_seconds += self._gpus * seconds
            for key, gpus in self._shares.items():
                self.gpu_seconds_out[key] = self.gpu_seconds_out.get(key, 0.0) + gpus * seconds
        state, agents = planner.state, planner.stale_agents
        self._nodes = max(0, agents.expected - len(agents.stale))
        self._gpus = sum(node.gpus for node in state.nodes.values())
        self._shares.clear()
        for uid in state.marks.marked_nodes():
            node = state.nodes.get(uid)
            for active, gpus in gpu_shares(self._marks(planner, node, faults), node.gpus) if node else ():
                self._shares[active.labels, active.mark.kind.gang_only] += gpus

    def _marks(
        self, planner: Planner, node: InventoryNode, faults: Mapping[str, _OpenFault]
    ) -> Iterator[_ActiveMark]:
        """Yield the marks of a node and its devices that are in effect, with the labels of their faults."""
        in_effect = planner.state.marks_in_effect(node.key)
        for device in in_effect.carriers:
            carrier = "" if device is None else device_mark_name(node.key, device)
            for cause in in_effect.record_of(device).all_causes:
                if cause.injected:
                    continue
                is_shared = cause.mark == Mark.DOMAIN_DEGRADED
                incidents = planner.tracker.recorded.by_uid.get(SHARED if is_shared else node.key, {})
                resource = cause.target if is_shared else resource_of(cause.target)
                labels = next(
                    (
                        faults[name].labels
                        for name, incident in incidents.items()
                        if name in faults and resource == (incident.domain or incident.target)
                    ),
                    None,
                )
                if labels is None:
                    domain, part = (cause.target, "") if is_shared else ("", target_kind(resource))
                    labels = self._labels(planner, cause.check, domain, part, "")
                yield _ActiveMark(carrier, cause.mark, cause.since, cause.check, labels)

    def _fault(self, planner: Planner, incident: Incident, now: Instant) -> _OpenFault:
        """Return an incident as a fault, and create the series of its labels."""
        part = "" if incident.domain else target_kind(incident.target)
        labels = self._labels(planner, incident.cause, incident.domain, part, incident.action.value)
        if self._series.create(labels, now):
            self.faults[labels] = 0
            self._on_new_labels(labels)
        return _OpenFault(labels, incident.first_seen)

    def _labels(self, planner: Planner, check: str, domain: str, part: str, action: str) -> FaultLabels:
        """Return labels of limited number: those beyond are `other`."""
        if domain and domain not in self._domains:
            if len(self._domains) >= _MAX_DOMAINS:
                domain = _OTHER
            else:
                self._domains.add(domain)
        labels = FaultLabels(self._checks.label(check, planner.state.checks.catalogue), domain, part, action)
        if labels not in self._combinations:
            if len(self._combinations) >= _MAX_COMBINATIONS:
                return _OTHERS
            self._combinations.add(labels)
        return labels
