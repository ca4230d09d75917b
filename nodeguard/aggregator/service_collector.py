"""Metrics that are read from the aggregator service at each scrape: agents, policy, fleet and topologies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeguard import __version__
from nodeguard.aggregator.fault_counter import FaultCounter
from nodeguard.aggregator.fault_metrics import fault_families
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.incident_metrics import incident_families
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.mark_counter import MarkCounter
from nodeguard.aggregator.mark_metrics import mark_families
from nodeguard.aggregator.metric_families import PREFIX, counter, counters, gauge, gauges
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.service import AggregatorService
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import observes_only
from nodeguard.fleet_api.domain import list_topologies
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.pipeline.new_series import CounterSeries

# Suppressed checks with a series each.
_MAX_CHECKS = 20

# Accepted messages, by kind and HTTP status.
_USUAL_REQUESTS = (("heartbeat", 200), ("report", 200))


class ServiceCollector(Collector):
    """Reads the state of the service at each scrape.

    policy: None for the built-in one. findings: counts by check and health. now: returns the time of a
    scrape.
    """

    def __init__(
        self,
        service: AggregatorService,
        ingest: IngestServer,
        policy: PolicyReloader | None,
        marks: MarkCounter,
        faults: FaultCounter,
        findings: Mapping[tuple[str, str], int],
        now: Callable[[], Instant],
    ) -> None:
        self._service, self._ingest, self._policy, self._now = service, ingest, policy, now
        self._marks, self._faults, self._findings = marks, faults, findings
        self._series = CounterSeries()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the service."""
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
        yield gauge("up", "Always 1: for an alert that proves that alerts arrive.", 1)
        yield gauge(
            "leader", "1 if this aggregator holds the lease, or runs without one, else 0.", service.is_leader
        )
        yield gauge("active", "1 if this aggregator applies its plans, else 0.", service.is_active)
        yield counter("plans", "Plans.", service.plans)
        yield counter("plan_errors", "Plans that failed; the log has the error.", service.errors)
        refused = GaugeMetricFamily(
            PREFIX + "api_requests_refused",
            "1 for requests that the Kubernetes API refuses; nodeguard status has the error.",
            labels=["verb", "resource"],
        )
        for request in service.backend.refused_requests():
            refused.add_metric([request.verb, request.resource], 1)
        yield refused
        yield gauge(
            "last_plan_timestamp_seconds",
            "Time at which the last plan was made or found unchanged; before the first, the start time.",
            now.wall_of(service.planned_at),
        )

    def _agents(self, now: Instant) -> Iterator[Metric]:
        service, endpoint = self._service, self._ingest.endpoint
        liveness = service.planner.stale_agents
        yield gauge("agents_expected", "Agents that should report.", liveness.expected)
        yield gauge("agents_stale", "Expected agents without a recent report.", len(liveness.stale))
        yield gauge(
            "agents_stale_out_of_service",
            "Expected agents without a recent report on Nodes that are not ready, cordoned or under "
            "maintenance.",
            count_out_of_service(service.planner),
        )
        yield gauge("agents_reporting", "Agents that have reported to this aggregator.", liveness.reported)
        yield gauge("agent_connections", "Open connections of agents.", self._ingest.connections)
        if service.capacity is not None:
            yield gauge(
                "agent_connections_limit",
                "Limit on connections of agents: depends on the limit on open files.",
                service.capacity.connections,
            )
        yield counter("received_bytes", "Bytes of accepted messages.", endpoint.received_bytes)
        requests = CounterMetricFamily(
            PREFIX + "requests",
            "Requests of agents by message kind (unknown if refused) and HTTP status.",
            labels=["kind", "code"],
        )
        # They flow at once after a start: as 0 they would look like an outage.
        usual = {key: endpoint.requests.get(key, 0) for key in _USUAL_REQUESTS}
        rare = {key: count for key, count in endpoint.requests.items() if key not in usual}
        for (kind, code), count in sorted((usual | self._series.values("requests", rare, now)).items()):
            requests.add_metric([kind, str(code)], count)
        yield requests
        yield counters(
            "job_reads",
            "Readings of the jobs of a node that votes in the diagnosis or requests a mark, by result.",
            "result",
            service.backend.job_reads,
        )
        failed = self._series.values("connection errors", endpoint.connection_errors, now)
        yield counters("connection_errors", "Failed connections.", "reason", failed)
        yield counters(
            "refused_messages",
            "Refused messages of authenticated nodes; the log and nodeguard status name the nodes.",
            "reason",
            self._series.values("refused", service.refusals.counts, now),
        )
        yield gauge(
            "refused_nodes",
            "Nodes with a refused message in the past ten minutes.",
            len(service.refusals.recent(now.mono)),
        )
        yield gauge(
            "frozen",
            "1 if so many agents do not report that no new marks are set, else 0.",
            bool(liveness.frozen),
        )

    def _policy_state(self) -> Iterator[Metric]:
        planner = self._service.planner
        is_paused = bool(planner.paused or planner.policy.pause)
        yield gauge(
            "enforcing",
            "1 if the policy enforces any mark, 0 if it only observes.",
            not observes_only(planner.policy),
        )
        yield gauge("paused", "1 if an operator or the policy has paused new marks, else 0.", is_paused)
        if self._policy is not None:
            yield gauge(
                "policy_last_reload_successful",
                "1 if the policy file is in use, 0 if it is invalid and the previous policy is in use.",
                not self._policy.error,
            )
            yield counter("policy_rejected", "Policy files that were invalid.", self._policy.rejected_count)

    def _fleet(self, now: Instant) -> Iterator[Metric]:
        planner = self._service.planner
        health = Counter(report.health.value for report in planner.reports.values())
        health["unknown"] = max(0, planner.stale_agents.expected - len(planner.reports))
        yield gauges(
            "nodes",
            "Nodes by the health in their last report; unknown without a report.",
            "health",
            {state: health[state] for state in (*(state.value for state in Health), "unknown")},
        )
        yield from incident_families(planner)
        yield gauge(
            "repeat_offenders",
            "Components that fail again and again, more often than others of the fleet.",
            len(planner.component_faults.repeat_offenders(now)),
        )
        findings = CounterMetricFamily(
            PREFIX + "findings",
            "Findings that began on nodes with an earlier report to this aggregator.",
            labels=["check", "health"],
        )
        for labels, count in sorted(self._series.values("findings", self._findings, now).items()):
            findings.add_metric(labels, count)
        yield findings
        yield from mark_families(planner, self._marks, self._series, now)
        yield from fault_families(self._faults, self._series, now)

    def _topologies(self) -> Iterator[Metric]:
        """Yield the metrics of topologies; there are about a dozen."""
        planner, topologies = self._service.planner, list_topologies(self._service.planner)
        yield gauges(
            "topology_domains",
            "Failure domains by topology.",
            "topology",
            {topology.topology: topology.domains for topology in topologies},
        )
        yield gauges(
            "topology_unplaced_nodes",
            "Nodes without a label or node location that others have; the largest number of any label.",
            "topology",
            {
                topology.topology: max((lack.nodes for lack in topology.missing_labels), default=0)
                for topology in topologies
            },
        )
        degraded = Counter(
            (cover.degraded.topology, cover.state) for cover in planner.domain_marks.decisions.values()
        )
        with_degraded = {view for view, _ in degraded}
        names = {topology.topology for topology in topologies} & {*LOCATION_TOPOLOGIES} | with_degraded
        domains = GaugeMetricFamily(
            PREFIX + "degraded_domains",
            "Degraded domains by topology and state of their marks.",
            labels=["topology", "state"],
        )
        for name in sorted(names):
            states = (planner.granted, IncidentState.WITHHELD, IncidentState.DRY_RUN, IncidentState.PENDING)
            for state in states:
                domains.add_metric([name, state.slug], degraded[name, state])
        yield domains
        yield gauges(
            "suppressed_checks",
            f"Suppressed checks, 1 for each; the first {_MAX_CHECKS} by name.",
            "check",
            dict.fromkeys(sorted(planner.diagnosis.suppressed_checks)[:_MAX_CHECKS], 1),
        )


def count_out_of_service(planner: Planner) -> int:
    """Return for how many stale agents no report is expected: their nodes may be powered off for a repair."""
    state = planner.state
    return sum(
        uid not in state.nodes
        or state.is_out(uid)
        or not state.nodes[uid].ready
        or bool(state.placements[uid].maintenance)
        for uid in planner.stale_agents.stale
    )


def _history(history: History) -> Iterator[Metric]:
    writer = history.writer
    yield gauge(
        "history_write_ok",
        "1 if the history is written, 0 if the last write failed; the log has the reason.",
        not writer.error,
    )
    yield gauge("history_bytes", "Size of the history file.", writer.size)
    yield counter("history_transitions", "Transitions written to the history.", writer.added)
    yield counter("history_lost", "Transitions that could not be written.", writer.lost)
