"""Metrics of the aggregator: a registry with the histograms of its work, and the collectors of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher
from nodeguard.aggregator.drain_metrics import DrainCollector
from nodeguard.aggregator.fault_counter import FaultCounter, FaultLabels
from nodeguard.aggregator.fault_metrics import REPAIR_BUCKETS
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.mark_counter import MarkCounter
from nodeguard.aggregator.metric_families import PREFIX, CheckLabels, gauges
from nodeguard.aggregator.monitoring_server import Page
from nodeguard.aggregator.notifications.metrics import NotificationCollector
from nodeguard.aggregator.notifications.webhooks import Webhooks
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.service import AggregatorService
from nodeguard.aggregator.service_collector import ServiceCollector
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.instant import Instant
from nodeguard.wire.report import ReportedFinding

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
            "Time from the beginning of a fault to its end.",
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
            ServiceCollector(service, ingest, policy, self.marks, self.faults, self._findings, now)
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
