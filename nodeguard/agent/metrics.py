"""The Prometheus metrics of the agent. GPU telemetry is not among them: other exporters have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import time

from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from nodeguard import __version__
from nodeguard.agent.agent import Agent
from nodeguard.agent.injector import ActiveInjections
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.model.finding import Finding, Health, Verdict
from nodeguard.pipeline.new_series import CounterSeries
from nodeguard.pipeline.verdict_metrics import GPU_LABELS, gauges, gpu_labels, verdict_metrics
from nodeguard.sources.nvml import GpuIdentity

# Findings with a series of their own, worst first; the rest is counted: series cost memory in Prometheus.
_MAX_FINDINGS = 20


class AgentSnapshot(Struct, frozen=True):
    """The state of an agent at a scrape.

    read_at: Unix time of each source's latest reading. evaluations: since the start. acked_at: Unix time of
    each aggregator's latest acknowledgement, 0 for never; None without aggregators. spooled: transitions that
    no aggregator has acknowledged. findings_raised: since the start, by check and health. xid_events: since
    the start, by target and code, 0 for unlisted codes. gpus: names of the GPUs in NVML, by target.
    injected: findings of the faults that are injected; no counter counts them.
    """

    verdict: Verdict
    read_at: Mapping[str, float]
    evaluations: int
    acked_at: Mapping[str, float] | None = None
    spooled: int = 0
    findings_raised: Mapping[tuple[str, Health], int] = {}
    xid_events: Mapping[tuple[str, int], int] = {}
    gpus: Mapping[str, GpuIdentity] = {}
    injected: tuple[Finding, ...] = ()


def metric_families(snapshot: AgentSnapshot) -> Iterator[Metric]:
    """Yield the metrics of an agent."""
    verdict = snapshot.verdict
    findings = verdict.findings[:_MAX_FINDINGS]
    yield from verdict_metrics(
        verdict.known_health,
        verdict.data_status,
        findings,
        verdict.read_failures,
        snapshot.gpus,
        snapshot.injected,
    )
    yield GaugeMetricFamily(
        "nodeguard_findings_omitted",
        "Findings without a series of their own.",
        value=len(verdict.findings) - len(findings),
    )
    yield gauges(
        "nodeguard_source_last_read_timestamp_seconds",
        "Unix time at which a source was last read.",
        "source",
        snapshot.read_at,
    )
    if snapshot.acked_at is not None:
        yield gauges(
            "nodeguard_last_acknowledged_timestamp_seconds",
            "Unix time at which an aggregator last acknowledged a message, 0 for never.",
            "endpoint",
            snapshot.acked_at,
        )
        about = "Transitions that no aggregator has acknowledged."
        yield GaugeMetricFamily("nodeguard_spooled_transitions", about, value=snapshot.spooled)
    raised = CounterMetricFamily(
        "nodeguard_findings", "Findings that began since the agent started.", labels=["check", "health"]
    )
    for (check, health), count in sorted(snapshot.findings_raised.items()):
        raised.add_metric([check, health.value], count)
    yield raised
    xids = CounterMetricFamily(
        "nodeguard_xid_events",
        "Xids since the agent started, and earlier ones of this boot; 0 for a code that is not listed.",
        labels=["xid", *GPU_LABELS],
    )
    for (target, code), count in sorted(snapshot.xid_events.items()):
        xids.add_metric([str(code), *gpu_labels(target, snapshot.gpus)], count)
    yield xids
    about = "Evaluations since the agent started."
    yield CounterMetricFamily("nodeguard_evaluations", about, value=snapshot.evaluations)
    yield InfoMetricFamily(
        "nodeguard_agent",
        "Version of the agent, and the platform that it has recognised.",
        value={"version": __version__, "platform": verdict.platform},
    )


class AgentMetrics(Collector):
    """The registry of one agent: its own metrics and those of its process, collected at each scrape.

    wall: returns the seconds since the epoch, as Prometheus has them: in a replay the agent has those of the
    recording.
    """

    def __init__(
        self,
        agent: Agent,
        queue: DeliveryQueue,
        endpoints: EndpointPool | None,
        injections: ActiveInjections,
        *,
        wall: Callable[[], float] = time,
    ) -> None:
        self._agent, self._queue, self._endpoints = agent, queue, endpoints
        self._injections, self._wall = injections, wall
        self._findings = CounterSeries()
        # The Xids of this boot are counted again after a restart of the agent.
        self._xids = CounterSeries(first_as_counted=True)
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return content type and metrics: OpenMetrics if the Accept header requests it, else text."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics at this time; none before the first verdict."""
        agent = self._agent
        if agent.verdict is None:
            return
        now = agent.now()
        wall = self._wall()
        read_at = {name: wall - age for name, age in agent.ages().items()}
        acked_at: dict[str, float] | None = None
        if self._endpoints:
            acked_at = {
                name: max(0.0, wall - (now.mono - mono)) for name, mono in self._endpoints.acked_at().items()
            }
        # The first counts of Xids are those of the first reading of the kernel log, not of an earlier scrape.
        has_xids = "kmsg" in read_at or bool(agent.xid_events)
        spooled = len(self._queue.state.spool)
        yield from metric_families(
            AgentSnapshot(
                verdict=agent.verdict,
                read_at=read_at,
                evaluations=agent.evaluations,
                acked_at=acked_at,
                spooled=spooled,
                findings_raised=self._findings.values("findings", agent.findings_raised, now),
                xid_events=self._xids.values("xids", agent.xid_events, now) if has_xids else {},
                gpus=agent.gpu_identities(),
                injected=tuple(injection.finding for injection in self._injections(now)),
            )
        )
