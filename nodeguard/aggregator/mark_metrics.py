"""Metrics of marks and budgets: marked nodes, unprotected nodes, and what was set, released and withheld."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from nodeguard.aggregator.mark_counter import MarkCounter
from nodeguard.aggregator.metric_families import PREFIX, gauge, gauges
from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark
from nodeguard.pipeline.new_series import CounterSeries
from nodeguard.pipeline.verdict_metrics import INJECTED, injected_label

# Nodes and budgets with series of their own: a fleet has thousands of domains with a budget each.
_MAX_NODES = 500
_MAX_BUDGETS = 20


def mark_families(
    planner: Planner, counter: MarkCounter, series: CounterSeries, now: Instant
) -> Iterator[Metric]:
    """Yield the metrics of marks."""
    yield from _marked(planner)
    state = planner.state
    devices = sum(len(state.marks.observed(uid).records.devices) for uid in state.marks.marked_nodes())
    yield gauge("marked_devices", "Marked devices.", devices)
    apart = f"those of injected faults have the label {INJECTED}"
    about = f"Marks that appeared on Nodes and devices; {apart}."
    yield _counters("marks_set", about, ("mark", "check"), series.values("set", counter.set_marks, now))
    about = f"Marks that disappeared from Nodes and devices, by reason; {apart}."
    released = series.values("released", counter.released_marks, now)
    yield _counters("marks_released", about, ("mark", "reason"), released)
    about = "Mark requests that became withheld, by the reason, without those of injected faults."
    withheld = {(*values, False): count for values, count in counter.withheld_requests.items()}
    withheld = series.values("withheld", withheld, now)
    yield _counters("mark_requests_withheld", about, ("mark", "reason"), withheld)
    yield from _unprotected(planner)
    yield from _budgets(planner)


def _marked(planner: Planner) -> Iterator[Metric]:
    by_node = {
        planner.state.nodes[uid].name: marks
        for uid in planner.state.marks.marked_nodes()
        if uid in planner.state.nodes and (marks := _marks(planner, uid))
    }
    counts = Counter(mark for marks in by_node.values() for mark in marks)
    yield gauges("marked_nodes", "Marked nodes.", "mark", {mark.value: counts[mark] for mark in Mark})
    family = GaugeMetricFamily(
        PREFIX + "node_mark",
        f"1 for each mark of a node; the first {_MAX_NODES} marks, quarantine first. A mark that only "
        f"injected faults cause has the label {INJECTED}, and comes after all others.",
    )
    rows = sorted(
        (injected, mark.rank, name, mark, fault_class)
        for name, marks in by_node.items()
        for mark, (fault_class, injected) in marks.items()
    )
    for injected, _, name, mark, fault_class in rows[:_MAX_NODES]:
        pairs = {"node": name, "mark": mark.value, "fault_class": fault_class}
        family.add_sample(family.name, {**pairs, **injected_label(injected=injected)}, 1)
    yield family


def _marks(planner: Planner, uid: str) -> dict[Mark, tuple[str, bool]]:
    """Return the marks of a node that are in effect, with the fault class of the first cause, and
    whether all causes are injected. The real causes come first.
    """
    observed = planner.state.marks_in_effect(uid).node
    marks: dict[Mark, tuple[str, bool]] = {}
    for cause in sorted(observed.all_causes, key=lambda cause: cause.injected):
        marks.setdefault(cause.mark, (cause.fault_class, cause.injected))
    return marks


def _unprotected(planner: Planner) -> Iterator[Metric]:
    """Yield the metrics of nodes with a fatal finding that may get new work."""
    rows = sorted(
        (planner.state.nodes[uid].name, reason)
        for uid, decisions in planner.tracker.decisions.items()
        if uid in planner.state.nodes
        and (reason := _unmarked_reason(decisions))
        and _is_schedulable(planner, uid)
    )
    counts = Counter(reason for _, reason in rows)
    about = "Nodes with a fatal finding that may get new work, by the reason why they are not marked."
    yield gauges("schedulable_fatal_nodes", about, "reason", dict(sorted(counts.items())))
    family = GaugeMetricFamily(
        PREFIX + "schedulable_fatal_node",
        "1 for each node with a fatal finding that may get new work, with the reason why it is not marked; "
        f"the first {_MAX_NODES} by name.",
        labels=["node", "reason"],
    )
    for name, reason in rows[:_MAX_NODES]:
        family.add_metric([name, reason], 1)
    yield family


def _is_schedulable(planner: Planner, uid: str) -> bool:
    """Return whether neither a cordon, nor a mark of nodeguard on the Node or a device, nor the taint of a
    Node that is not ready keeps work away.
    """
    node, marks = planner.state.nodes[uid], planner.state.marks_in_effect(uid)
    excludes_all = any(not mark.kind.gang_only for mark in marks.node.marks)
    return not (planner.state.is_out(uid) or not node.ready or excludes_all or marks.devices)


def _unmarked_reason(decisions: Iterable[MarkDecision]) -> str:
    """Return why the worst quarantine that is requested for a node is not in effect: the kind of its
    restraint, or its state; empty if none is requested, or the mark of its domain replaces it.
    """
    quarantines = (
        decision
        for decision in decisions
        if decision.request.mark.kind.health == Health.FATAL
        and decision.state != IncidentState.OPEN
        and not decision.request.injected
    )
    worst = min(quarantines, key=lambda decision: decision.request.order, default=None)
    if worst is None:
        return ""
    if worst.state == IncidentState.DRY_RUN:
        return worst.state.slug
    return worst.restraint or worst.state.slug


def _budgets(planner: Planner) -> Iterator[Metric]:
    """Yield the use of the budgets."""
    budgets = planner.state.budgets.rows()
    fullest = sorted(budgets, key=lambda budget: budget[1] / budget[2], reverse=True)[:_MAX_BUDGETS]
    ratio = {name: used / limit for name, used, limit, _ in fullest}
    used_nodes = {name: used for name, used, _, _ in fullest}
    limits = {name: limit for name, _, limit, _ in fullest}
    which = f"the {_MAX_BUDGETS} budgets with the highest use"
    yield gauges("budget_used_ratio", f"Used share of a budget, 1 for all of it; {which}.", "budget", ratio)
    yield gauges("budget_used_nodes", f"Used part of a budget in nodes; {which}.", "budget", used_nodes)
    yield gauges("budget_limit_nodes", f"Size of a budget in nodes; {which}.", "budget", limits)


def _counters(
    name: str, about: str, labels: tuple[str, str], counts: Mapping[tuple[str, str, bool], int]
) -> Metric:
    """Return a family of counters. counts: by the values of the labels, and whether faults were injected."""
    family = CounterMetricFamily(PREFIX + name, about)
    for (first, second, injected), count in sorted(counts.items()):
        pairs = {labels[0]: first, labels[1]: second, **injected_label(injected=injected)}
        family.add_sample(f"{family.name}_total", pairs, count)
    return family
