"""Metrics of the aggregator: a registry with a collector over the service and histograms of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from nodeguard import __version__
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher
from nodeguard.aggregator.drain_metrics import DrainCollector
from nodeguard.aggregator.fault_counter import FaultCounter, FaultLabels
from nodeguard.aggregator.fault_metrics import REPAIR_BUCKETS, fault_families
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.incident_metrics import incident_families
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.mark_counter import MarkCounter
from nodeguard.aggregator.mark_metrics import mark_families
from nodeguard.aggregator.metric_families import PREFIX, CheckLabels, counter, counters, gauge, gauges
from nodeguard.aggregator.monitoring_server import Page
from nodeguard.aggregator.notifications.metrics import NotificationCollector
from nodeguard.aggregator.notifications.webhooks import Webhooks
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.service import AggregatorService
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import observes_only
from nodeguard.fleet_api.domain import list_topologies
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.pipeline.new_series import CounterSeries
from nodeguard.wire.report import ReportedFinding

# Suppressed checks with a series each.
_MAX_CHECKS = 20

# Accepted messages, by kind and HTTP status.
_USUAL_REQUESTS = (("heartbeat", 200), ("report", 200))

_PLAN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LATENCY_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
_RELEASE_BUCKETS = (60.0, 300.0, 600.0, 1_200.0, 2_400.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0)
_REQUEST_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)

# The `_created` series of histograms would be gauges without use. The library has no type for this function.
_disable_created: Callable[[], None] = disable_created_metrics
_disable_created()


class AggregatorMetrics:
    """The registry of one aggregator. Its methods are the listeners of the parts that it measures.

    planner: has the catalogue of the checks. marks, faults: count the changes of marks and of faults.

    Series of single nodes are few: the marked and the unprotected. The agents export those of each node.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner, self._checks = planner, CheckLabels()
        self.registry = CollectorRegistry(auto_describe=False)

        def histogram(
            name: str, about: str, buckets: Sequence[float], labels: Sequence[str] = ()
        ) -> Histogram:
            return Histogram(PREFIX + name, about, labels, registry=self.registry, buckets=buckets)

        self._plan_duration = histogram("plan_duration_seconds", "Duration of a plan.", _PLAN_BUCKETS)
        self._message_duration = histogram(
            "message_duration_seconds",
            "Duration from a decoded message of an agent to the encoded reply.",
            _REQUEST_BUCKETS,
            ["kind"],
        )
        for kind in ("report", "heartbeat"):
            self._message_duration.labels(kind)
        self._write_duration = histogram(
            "mark_write_duration_seconds",
            "Duration from the plan to the response of the Kubernetes API, for each Node with written marks.",
            _LATENCY_BUCKETS,
        )
        self._detection_delay = histogram(
            "detection_delay_seconds",
            "Time from the first occurrence of a finding on a node to its report to this aggregator.",
            _LATENCY_BUCKETS,
        )
        release_delay = histogram(
            "mark_release_delay_seconds",
            "Time from the first passing result of a check to the removal of its mark, with the soak period.",
            _RELEASE_BUCKETS,
        )
        self._findings: Counter[tuple[str, str]] = Counter()
        self._repair_duration = histogram(
            "repair_duration_seconds",
            "Time from the begin of a fault to its end.",
            REPAIR_BUCKETS,
            FaultLabels._fields,
        )
        self.faults = FaultCounter(on_new_labels=self.fault_began, on_repaired=self.fault_repaired)
        self.marks = MarkCounter(on_released=release_delay.observe)
        ProcessCollector(registry=self.registry)

    def message_handled(self, kind: str, seconds: float) -> None:
        """Measure a message of an agent, from its body to the reply."""
        self._message_duration.labels(kind).observe(seconds)

    def finding_detected(self, finding: ReportedFinding, seconds: float) -> None:
        """Count a new finding. seconds: from its first occurrence to its report here."""
        self._detection_delay.observe(seconds)
        check = self._checks.label(finding.check, self._planner.state.checks.catalogue)
        self._findings[check, finding.health.value] += 1

    def fault_began(self, labels: FaultLabels) -> None:
        """Export the duration of the repairs of such faults, before the first repair."""
        self._repair_duration.labels(*labels)

    def fault_repaired(self, labels: FaultLabels, seconds: float) -> None:
        """Measure a fault that ended. seconds: since its begin."""
        self._repair_duration.labels(*labels).observe(seconds)

    def marks_written(self, seconds: float) -> None:
        """Measure the write of the marks of a Node, from the plan to the response."""
        self._write_duration.observe(seconds)

    def observe(
        self,
        service: AggregatorService,
        ingest: IngestServer,
        policy: PolicyReloader | None,
        now: Callable[[], Instant],
        webhooks: Webhooks | None = None,
        certificate: CertificateRefresher | None = None,
        drains: DrainRunner | None = None,
    ) -> None:
        """Add the plans and the state of the running parts. now: returns the time of a scrape."""

        def planned(plan: Plan, planned_at: Instant) -> None:
            if service.is_planned:
                self._plan_duration.observe(service.plan_seconds)
            self.marks.plan_made(service.planner, plan, planned_at, acts=service.is_active)
            self.faults.plan_made(
                service.planner, plan, service.backend.decisions, planned_at, acts=service.is_active
            )

        service.plan_listeners.append(planned)
        self.registry.register(
            _ServiceCollector(service, ingest, policy, self.marks, self.faults, self._findings, now)
        )
        if webhooks is not None:
            self.registry.register(NotificationCollector(webhooks))
        if certificate is not None:
            self.registry.register(_CertificateCollector(certificate))
        if drains is not None:
            actions = service.backend.action_store.actions
            self.registry.register(DrainCollector(drains, service.planner, actions))

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
        marks: MarkCounter,
        faults: FaultCounter,
        findings: Mapping[tuple[str, str], int],
        now: Callable[[], Instant],
    ) -> None:
        self._service, self._ingest, self._policy, self._now = service, ingest, policy, now
        self._marks, self._faults, self._findings = marks, faults, findings
        self._series = CounterSeries()

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
            "Those of them on Nodes that are not ready, cordoned or under maintenance.",
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


class _CertificateCollector(Collector):
    """Reads at each scrape when the certificate in use and its authority expire."""

    def __init__(self, refresher: CertificateRefresher) -> None:
        self._refresher = refresher

    def collect(self) -> Iterator[Metric]:
        certificate = self._refresher.certificate
        if certificate is None:
            return
        ends = {"serving": certificate.expires_at, "authority": certificate.authority_expires_at}
        yield gauges(
            "certificate_expiry_timestamp_seconds",
            "Time at which the serving certificate, or the authority that signed it, expires.",
            "certificate",
            {name: end for name, end in ends.items() if end != inf},
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
