"""An aggregator in which every condition of the alert rules is met, with the metrics of its real parts."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.identity.insecure import InsecureAuthenticator
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.notifications.settings import NotificationSettings
from nodeguard.aggregator.notifications.webhooks import Webhooks
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.fleet.diagnosis.results import DegradedDomain, SuppressedCheck
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.finding import Health
from nodeguard.model.policy import Budget, Mode, ModeRule, NodeLocation
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.wire.report import ReportedFinding
from tests.aggregator.notifications.scene import notification, webhook
from tests.aggregator.test_report_handler import beat, report
from tests.aggregator.test_service import Scene
from tests.alerts.pages import SelfSigned, fail_drain, idle_drains
from tests.fleet.scene import finding

# Nodes of the fleet, of its only rack, and those that stop reporting. Incidents of a node are limited to 128.
_NODES, _RACK, _STALE, _FINDINGS = 20, 8, 4, 130


class TroubledAggregator:
    """The aggregator of a fleet in which everything fails that an alert reports. Its clock is in the past, so
    its certificate, its plan and its notifications are too old for the rules.
    """

    def __init__(self) -> None:
        self._scene = Scene()
        self._metrics = AggregatorMetrics(self._scene.planner)
        self._history: HistoryWriter | None = None
        self._webhooks = Webhooks(NotificationSettings((webhook(),)), lambda: self._scene.now)

    async def fail(self, directory: Path) -> None:
        """Let everything fail. directory: for the policy file."""
        scene, planner = self._scene, self._scene.planner
        self._set_policy()
        await self._observe(directory)
        for number in range(_NODES):
            self._report(number, 1)
        await scene.turn(1.0)
        lost, hot = finding("gpu-lost"), finding("gpu-hot")
        many = (
            replace(hot, target=f"port/mlx5_{port}/1", health=Health.WARNING) for port in range(_FINDINGS)
        )
        self._report(0, 2, lost)
        await scene.turn(1.0)
        self._report(1, 2, lost)
        self._report(2, 2, hot)
        self._report(3, 2, finding("gpu-ecc", health=Health.SUSPECT))
        self._report(4, 2, *many)
        await scene.turn(1.0)
        for uid in planner.state.nodes:
            await fail_drain(scene, uid)
        planner.paused = "a driver rollout"
        mono = scene.now.mono
        members = tuple(map(_name, range(_RACK)))
        planner.diagnosis.open(DegradedDomain("r1", "rack/r1", ("link-down",), mono, mono, members, _RACK))
        planner.diagnosis.open(SuppressedCheck("gpu-lost", mono, mono, (), 0, 0.0))
        await scene.turn(60.0)
        for number in range(_NODES - _STALE):
            scene.handler(Caller(_name(number), _name(number)), replace(beat(sequence=3), node=_name(number)))
        await scene.turn(1.0)
        scene.handler.message_refused(_name(1), RequestRefusedError(409, "another boot", reason="other-boot"))

    def page(self) -> str:
        """Return the metrics; each time, more plans have failed, and more notifications and transitions are lost."""
        self._scene.service.errors += 1
        # A history that is closed loses each transition.
        assert self._history is not None
        self._history.close()
        self._history.put(HistoryNote(0.0, NoteKind.PAUSE, "", "", ""))
        delivery = self._webhooks.sender.delivery
        for counts in (delivery.refused, delivery.dropped):
            counts["oncall"] += 1
        body = self._metrics.page("").body
        return body if isinstance(body, str) else body.decode()

    def close(self) -> None:
        """End the thread of the history."""
        if self._history is not None:
            self._history.close()

    def _set_policy(self) -> None:
        """Enforce all marks except those of one check, in a fleet with a rack and nodes without one."""
        planner = self._scene.planner
        planner.set_policy(
            replace(
                planner.policy,
                modes=(ModeRule(Mode.OBSERVE, check="gpu-hot"),),
                budget=Budget(),
                locations=tuple(NodeLocation(_name(number), {"rack": "r1"}) for number in range(_RACK)),
                diagnosis=replace(planner.policy.diagnosis, enforce=("rack",)),
            )
        )

    async def _observe(self, directory: Path) -> None:
        """Add the parts beside the planner, each with a problem. directory: for an invalid policy file."""
        scene, planner, service = self._scene, self._scene.planner, self._scene.service
        policy_file = directory / "policy.yaml"
        policy_file.write_text("defaultMode: enforced\n")
        policy = PolicyReloader(policy_file, {}, ())
        policy.is_requested = True
        assert policy(planner, scene.now)
        ingest = IngestServer(InsecureAuthenticator("127.0.0.1"), scene.handler, lambda: None)
        certificate = CertificateRefresher(SelfSigned(), lambda: scene.now.wall)
        assert await certificate.refresh()
        drains = idle_drains(scene)
        self._metrics.observe(service, ingest, policy, lambda: scene.now, self._webhooks, certificate, drains)
        self._webhooks.sender.add("oncall", notification())
        # A file is no directory: the history cannot be written.
        self._history = HistoryWriter(str(policy_file / "history.sqlite"), HistoryLimits(days=30, mib=256))
        service.history = History(planner, dict, self._history, started_at=0.0)
        service.capacity = ConnectionCapacity(open_files=266, connections=10)
        scene.backend.refused = (RefusedRequest("patch", "nodes/status", "forbidden", 60.0),)

    def _report(self, number: int, sequence: int, *findings: ReportedFinding) -> None:
        name = _name(number)
        caller = Caller(name, name)
        if sequence == 1:
            self._scene.backend.node_reported(caller, report())
        health = max((item.health for item in findings), key=list(Health).index, default=Health.OK)
        new = replace(report(sequence), node=name, health=health, findings=findings)
        self._scene.handler(caller, new)


def _name(number: int) -> str:
    return f"node-{number}"
