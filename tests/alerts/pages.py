"""Metrics pages with every family: of an agent, of `nodeguard check`, and of an aggregator."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.agent.metrics import AgentSnapshot
from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher, ServingCertificate
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.monitoring_server import Page
from nodeguard.aggregator.notifications.settings import NotificationSettings
from nodeguard.aggregator.notifications.webhooks import Webhooks
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.cli.render.verdict_metrics import as_metrics
from nodeguard.fleet.diagnosis.results import SuppressedCheck
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.drain import DrainPolicy
from nodeguard.model.finding import Action, DataStatus, Finding, Health, ReadFailure, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.policy import InjectionPolicy, NodeLocation
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.pipeline.new_series import ZERO_SECONDS
from nodeguard.wire.report import ReportedFinding, ReportedInjection
from tests.agent.metrics_text import metrics_text
from tests.aggregator.notifications.scene import notification, webhook
from tests.aggregator.test_report_handler import report
from tests.aggregator.test_service import CALLER, Scene
from tests.fleet.scene import finding

NOW = Instant(1e9, 0.0, "")


def verdict() -> Verdict:
    """A verdict with a finding and a failed read."""
    fault = Finding(
        "a", "node", "", Health.FATAL, DataStatus.FRESH, Action.MONITOR, 0.0, "", (), "", "", "", ""
    )
    failure = ReadFailure("nvml", ("gpu/0000:3b:00",), "temperature", "timed out")
    return Verdict(Health.FATAL, DataStatus.FRESH, (fault,), read_failures=(failure,), evaluated=1)


def agent_page() -> str:
    """The page of an agent that reports to an aggregator."""
    return metrics_text(
        AgentSnapshot(
            verdict(),
            {"nvml": 1.0},
            1,
            {"https://aggregator.example": 1.0},
            findings_raised={("gpu-lost", Health.FATAL): 1},
            xid_events={("gpu/0000:3b:00", 79): 1},
            injected=verdict().findings,
        )
    )


def check_page() -> str:
    """The output of `nodeguard check -o prometheus`."""
    return as_metrics(verdict(), NOW, {})


class SelfSigned:
    """Issues a serving certificate of a new authority."""

    async def current(self, now: float) -> ServingCertificate:
        return issue_serving_certificate(issue_authority(now), ["nodeguard.example"], now)


def idle_drains(scene: Scene) -> DrainRunner:
    """Return the drains of an aggregator that has no candidate and evicts nothing."""
    store = scene.backend.action_store
    return DrainRunner(DrainFleet(DrainPolicy, lambda _now: ()), store, lambda: None, now=lambda: scene.now)


async def fail_drain(scene: Scene, node: str) -> None:
    """Store a failed drain of a node that is quarantined now."""
    at = int(scene.now.wall)
    drain = NodeAction(ActionKind.DRAIN, node, node, "quarantine of GPU 0", at, state=ActionState.FAILED)
    await scene.backend.action_store.reserve(drain)


class MeasuredAggregator(NamedTuple):
    """The parts of an aggregator with all its metrics."""

    scene: Scene
    metrics: AggregatorMetrics
    ingest: IngestServer
    drains: DrainRunner


async def new_aggregator() -> MeasuredAggregator:
    """An aggregator without node locations, before its first report."""

    def detected(new: ReportedFinding, seconds: float) -> None:
        metrics.finding_detected(new, seconds)

    scene = Scene(detected)
    metrics, service = AggregatorMetrics(scene.planner), scene.service
    ingest = IngestServer(InsecureAuthenticator("127.0.0.1"), scene.handler, lambda: None)
    policy = PolicyReloader(Path("/nowhere"), {}, ())
    webhooks = Webhooks(NotificationSettings((webhook(),)))
    webhooks.sender.add("oncall", notification())
    certificate = CertificateRefresher(SelfSigned(), lambda: scene.now.wall)
    assert await certificate.refresh()
    drains = idle_drains(scene)
    metrics.observe(service, ingest, policy, lambda: scene.now, webhooks, certificate, drains)
    return MeasuredAggregator(scene, metrics, ingest, drains)


async def busy_aggregator() -> MeasuredAggregator:
    """An aggregator that has marked a node of a rack and one with an injected fault, has withheld and released
    marks, and suppresses a check.
    """
    aggregator = await new_aggregator()
    scene, metrics, ingest, drains = aggregator
    service = scene.service
    location = NodeLocation("node-1", {"rack": "r1"})
    injection = InjectionPolicy(allowed=True)
    scene.planner.set_policy(replace(scene.planner.policy, locations=(location,), injection=injection))
    second = Caller("node-2", "node-2")
    scene.handler(CALLER, report())
    third = Caller("node-3", "node-3")
    for caller in (second, third):
        scene.handler(caller, replace(report(), node=caller.node))
    await scene.turn()
    injected = ReportedInjection(finding("gpu-ecc", "gpu/0000:3c:00"), "uid 0", 60.0)
    scene.handler(CALLER, report(2, fatal=True))
    scene.handler(third, replace(report(2), node="node-3", injections=(injected,)))
    await scene.turn(1.0)
    scene.planner.paused = "a driver rollout"
    scene.handler(second, replace(report(2, fatal=True), node="node-2"))
    await scene.turn(1.0)
    await scene.turn(1.0)
    scene.planner.paused = ""
    # The quarantines of the others are of no real fault, or withheld.
    for node in ("node-1", "node-2", "node-3"):
        await fail_drain(scene, node)
    drains.evicted = 2
    service.capacity = ConnectionCapacity(1024, 768)
    scene.backend.refused = (RefusedRequest("patch", "nodes/status", "forbidden", 60.0),)
    writer = HistoryWriter("history.sqlite", HistoryLimits(days=30, mib=256))
    service.history = History(scene.planner, dict, writer, started_at=0.0)
    refused = RequestRefusedError(409, "another boot: wait", reason="other-boot")
    scene.handler.message_refused("node-1", refused)
    ingest.endpoint.requests.update({("report", 200): 1, ("unknown", 401): 2})
    ingest.endpoint.connection_errors["timeout"] += 1
    suppressed = SuppressedCheck("gpu-lost", scene.now.mono, scene.now.mono, (), 0, 0.0)
    scene.planner.diagnosis.open(suppressed)
    metrics.message_handled("report", 0.0002)
    [labels] = metrics.faults.faults
    metrics.fault_repaired(labels, 7200.0)
    metrics.faults.faults[labels] += 2
    metrics.faults.false_alarms["gpu-lost"] += 1
    metrics.faults.gpu_seconds_out[labels, False] = 60.0
    for is_injected in (False, True):
        metrics.marks.released_marks["quarantine", "proven", is_injected] += 1
    return aggregator


async def aggregator_response(accept: str = "") -> Page:
    """The response of this aggregator after all series have been scraped as 0. accept: the Accept header."""
    scene, metrics, *_ = await busy_aggregator()
    metrics.page(accept)
    scene.mono += ZERO_SECONDS
    return metrics.page(accept)


async def aggregator_page() -> str:
    """The page of an aggregator in Prometheus' text format."""
    body = (await aggregator_response()).body
    return body if isinstance(body, str) else body.decode()
