"""Metrics of the aggregator: a registry with a collector over the service and histograms of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from nodeguard import __version__
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.monitoring_server import Page
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.service import AggregatorService
from nodeguard.fleet_api.domain import list_topologies
from nodeguard.fleet_api.incident import all_incidents
from nodeguard.fleet_api.schema.node import DEGRADED
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark

PREFIX = "nodeguard_aggregator_"

# Budgets and suppressed checks with a series each: a fleet has thousands of domains with a budget.
_MAX_BUDGETS = 20
_MAX_CHECKS = 20

_PLAN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LATENCY_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
_REQUEST_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)

# The `_created` series of histograms would be gauges without use. The library has no type for this function.
_disable_created: Callable[[], None] = disable_created_metrics
_disable_created()


class AggregatorMetrics:
    """The registry of one aggregator. now: returns the time of a scrape.

    Series of nodes are numbers only: the agents export the series of each node.
    """

    def __init__(
        self,
        service: AggregatorService,
        ingest: IngestServer,
        policy: PolicyReloader | None,
        now: Callable[[], Instant],
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        plan_duration = Histogram(
            PREFIX + "plan_duration_seconds",
            "Duration of a plan.",
            registry=self.registry,
            buckets=_PLAN_BUCKETS,
        )
        request_duration = Histogram(
            PREFIX + "message_duration_seconds",
            "Duration from a decoded message of an agent to the encoded reply.",
            ["kind"],
            registry=self.registry,
            buckets=_REQUEST_BUCKETS,
        )
        write_duration = Histogram(
            PREFIX + "mark_write_duration_seconds",
            "Duration from the plan to the response of the Kubernetes API, for each Node with written marks.",
            registry=self.registry,
            buckets=_LATENCY_BUCKETS,
        )
        detection_delay = Histogram(
            PREFIX + "detection_delay_seconds",
            "Time from the first occurrence of a finding on a node to its report to this aggregator.",
            registry=self.registry,
            buckets=_LATENCY_BUCKETS,
        )
        service.backend.on_written = write_duration.observe
        service.handler.on_detected = detection_delay.observe
        service.on_planned = plan_duration.observe
        ingest.endpoint.on_handled = lambda kind, seconds: request_duration.labels(kind).observe(seconds)
        ProcessCollector(registry=self.registry)
        self.registry.register(_ServiceCollector(service, ingest, policy, now))

    def page(self, accept: str) -> Page:
        """Return the metrics: OpenMetrics if the Accept header asks for it, else Prometheus' text format."""
        encode, content_type = choose_encoder(accept)
        return Page(200, encode(self.registry), content_type)


class _ServiceCollector(Collector):
    """Reads the state of the service at each scrape."""

    def __init__(
        self,
        service: AggregatorService,
        ingest: IngestServer,
        policy: PolicyReloader | None,
        now: Callable[[], Instant],
    ) -> None:
        self._service, self._ingest, self._policy, self._now = service, ingest, policy, now

    def collect(self) -> Iterator[Metric]:
        now = self._now()
        yield from self._process(now)
        yield from self._agents(now)
        yield from self._policy_state()
        yield from self._fleet(now)
        yield from self._topologies()
        if isinstance(self._service.history, History):
            yield from _history(self._service.history)

    def _process(self, now: Instant) -> Iterator[Metric]:
        service = self._service
        build = InfoMetricFamily(PREFIX + "build", "Version of the aggregator.")
        build.add_metric([], {"version": __version__})
        yield build
        yield _gauge("up", "Always 1: for an alert that proves that alerts arrive.", 1)
        yield _gauge(
            "leader", "1 if this aggregator holds the lease, or runs without one, else 0.", service.is_leader
        )
        yield _gauge("active", "1 if this aggregator applies its plans, else 0.", service.is_active)
        yield _counter("plans", "Plans.", service.plans)
        yield _counter("plan_errors", "Plans that failed; the log has the error.", service.errors)
        yield _gauge(
            "last_plan_timestamp_seconds",
            "Time of the last plan; before the first, the start time.",
            now.wall - (now.mono - service.planned_at),
        )

    def _agents(self, now: Instant) -> Iterator[Metric]:
        service, endpoint = self._service, self._ingest.endpoint
        liveness = service.planner.stale_agents
        yield _gauge("agents_expected", "Agents that should report.", liveness.expected)
        yield _gauge("agents_stale", "Expected agents without a recent report.", len(liveness.stale))
        yield _gauge("agents_reporting", "Agents that have reported to this aggregator.", liveness.reported)
        yield _gauge("agent_connections", "Open connections of agents.", self._ingest.connections)
        if service.capacity is not None:
            yield _gauge(
                "agent_connections_limit",
                "Limit on connections of agents: depends on the limit on open files.",
                service.capacity.connections,
            )
        yield _counter("received_bytes", "Bytes of accepted messages.", endpoint.received_bytes)
        requests = CounterMetricFamily(
            PREFIX + "requests",
            "Requests of agents by message kind (unknown if refused) and HTTP status.",
            labels=["kind", "code"],
        )
        for (kind, code), count in sorted(endpoint.requests.items()):
            requests.add_metric([kind, str(code)], count)
        yield requests
        yield _counters("connection_errors", "Failed connections.", "reason", endpoint.connection_errors)
        yield _counters(
            "refused_messages",
            "Refused messages of authenticated nodes; the log and nodeguard status name the nodes.",
            "reason",
            service.refusals.counts,
        )
        yield _gauge(
            "refused_nodes",
            "Nodes with a refused message in the past ten minutes.",
            len(service.refusals.recent(now.mono)),
        )
        yield _gauge(
            "frozen", "1 if too many agents are stale to set new marks, else 0.", bool(liveness.frozen)
        )

    def _policy_state(self) -> Iterator[Metric]:
        planner = self._service.planner
        is_paused = bool(planner.paused or planner.policy.pause)
        yield _gauge("paused", "1 if an operator or the policy has paused new marks, else 0.", is_paused)
        if self._policy is not None:
            yield _gauge(
                "policy_last_reload_successful",
                "1 if the policy file is in use, 0 if it is invalid and the previous policy is in use.",
                not self._policy.error,
            )
            yield _counter("policy_rejected", "Policy files that were invalid.", self._policy.rejected_count)

    def _fleet(self, now: Instant) -> Iterator[Metric]:
        planner = self._service.planner
        health = Counter(report.health.value for report in planner.reports.values())
        health["unknown"] = max(0, planner.stale_agents.expected - len(planner.reports))
        yield _gauges(
            "nodes",
            "Nodes by the health in their last report; unknown without a report.",
            "health",
            {state: health[state] for state in (*(state.value for state in Health), "unknown")},
        )
        marks = Counter(mark for uid in planner.state.marked_nodes() for mark in _marks(self._service, uid))
        yield _gauges(
            "marked_nodes", "Marked nodes.", "mark", {mark: marks[mark] for mark in (*Mark, DEGRADED)}
        )
        yield _gauge("marked_devices", "Marked devices.", len(planner.state.devices.rules))
        states = Counter(incident.state for incident in all_incidents(planner))
        yield _gauges(
            "incidents",
            "Open incidents by state.",
            "state",
            {state.slug: states[state] for state in IncidentState if state != IncidentState.RESOLVED},
        )
        yield _gauge(
            "omitted_incidents",
            "Incidents above the limit of a node or of the fleet; nodeguard status has the number of nodes.",
            sum(map(len, planner.incidents_left_out.values())),
        )
        yield _counter(
            "incidents_omitted", "Incidents above a limit when they began.", planner.incidents_left_out_total
        )
        yield _gauge(
            "repeat_offenders",
            "Components that fail again and again, more often than others of the fleet.",
            len(planner.component_faults.repeat_offenders(now)),
        )
        yield from _budgets(self._service)

    def _topologies(self) -> Iterator[Metric]:
        """Yield the metrics of topologies; there are about a dozen."""
        planner, topologies = self._service.planner, list_topologies(self._service.planner)
        yield _gauges(
            "topology_domains",
            "Failure domains by topology.",
            "topology",
            {topology.topology: topology.domains for topology in topologies},
        )
        yield _gauges(
            "topology_unplaced_nodes",
            "Nodes without a label or node location that others have; the largest number of any label.",
            "topology",
            {
                topology.topology: max((lack.nodes for lack in topology.missing_labels), default=0)
                for topology in topologies
            },
        )
        degraded = Counter(
            (cover.degraded.topology, cover.state) for cover in planner.domain_decisions.values()
        )
        with_degraded = {view for view, _ in degraded}
        names = {topology.topology for topology in topologies} & {*LOCATION_TOPOLOGIES} | with_degraded
        domains = GaugeMetricFamily(
            PREFIX + "degraded_domains",
            "Degraded domains by topology and state of their marks.",
            labels=["topology", "state"],
        )
        for name in sorted(names):
            for state in (planner.granted, IncidentState.WITHHELD, IncidentState.DRY_RUN):
                domains.add_metric([name, state.slug], degraded[name, state])
        yield domains
        yield _gauges(
            "suppressed_checks",
            f"Suppressed checks, 1 for each; the first {_MAX_CHECKS} by name.",
            "check",
            dict.fromkeys(sorted(planner.diagnosis.suppressed_checks)[:_MAX_CHECKS], 1),
        )


def _budgets(service: AggregatorService) -> Iterator[Metric]:
    """Yield the use of the budgets."""
    budgets = service.planner.state.budgets.rows()
    fullest = sorted(budgets, key=lambda budget: budget[1] / budget[2], reverse=True)[:_MAX_BUDGETS]
    ratio = {name: used / limit for name, used, limit, _ in fullest}
    used_nodes = {name: used for name, used, _, _ in fullest}
    limits = {name: limit for name, _, limit, _ in fullest}
    which = f"the {_MAX_BUDGETS} budgets with the highest use"
    yield _gauges("budget_used_ratio", f"Used share of a budget, 1 for all of it; {which}.", "budget", ratio)
    yield _gauges("budget_used_nodes", f"Used part of a budget in nodes; {which}.", "budget", used_nodes)
    yield _gauges("budget_limit_nodes", f"Size of a budget in nodes; {which}.", "budget", limits)


def _history(history: History) -> Iterator[Metric]:
    writer = history.writer
    yield _gauge(
        "history_write_ok",
        "1 if the history is written, 0 if the last write failed; the log has the reason.",
        not writer.error,
    )
    yield _gauge("history_bytes", "Size of the history file.", writer.size)
    yield _counter("history_transitions", "Transitions written to the history.", writer.added)
    yield _counter("history_lost", "Transitions that could not be written.", writer.lost)


def _marks(service: AggregatorService, uid: str) -> set[str]:
    node = service.planner.state.observed_marks(uid).node
    return {*(cause.mark for cause in node.causes), *((DEGRADED,) if node.degraded else ())}


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, about, value=value)


def _gauges(name: str, about: str, label: str, values: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, about, value=value)


def _counters(name: str, about: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, about, labels=[label])
    for key, count in sorted(counts.items()):
        family.add_metric([key], count)
    return family
