from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.outbox import InstructionOutbox, instructions
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import InjectionPolicy
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report, ReportedInjection
from tests.fleet.scene import AT_ONCE, CHECKS, finding, in_order
from tests.logs import LogLines

CALLER = Caller("node-1", "uid-1")

CLEAR = NodeAction(
    ActionKind.CLEAR, "node-1", "uid-1", "Ann", 100, incident="i", state=ActionState.RUNNING,
    findings=(FindingKey("gpu-ecc", "gpu/0000:3b:00"), FindingKey("gpu-lost", "gpu/0000:3b:00")),
)  # fmt: skip


def report(sequence: int = 1, boot: str = "b", *, digest: str = "d", fatal: bool = False) -> Report:
    return Report(
        version=VERSION, node="node-1", boot_id=boot, sequence=sequence, digest=digest,
        health=Health.FATAL if fatal else Health.OK,
        findings=(finding(),) if fatal else (), passing=() if fatal else (in_order(),),
    )  # fmt: skip


_SEQUENCES = count(10)


def beat(digest: str = "d", boot: str = "b", sequence: int | None = None) -> Heartbeat:
    return Heartbeat(
        version=VERSION, node="node-1", boot_id=boot, digest=digest,
        sequence=next(_SEQUENCES) if sequence is None else sequence,
    )  # fmt: skip


class Scene:
    """A report handler, its planner and outbox, and a clock. wakes: calls of the plan loop."""

    def __init__(self, topologies: Mapping[str, Collection[str]] | None = None) -> None:
        self.detected: list[tuple[str, float]] = []
        self.planner = Planner(AT_ONCE, CHECKS, topologies=topologies or {})
        self.outbox = InstructionOutbox()
        self.wakes = 0
        self.reported: list[str] = []
        self.now = Instant(1e9, 100.0, "")
        inputs = FleetInputs(self.planner, self._wake, lambda: self.now)
        self.handler = ReportHandler(
            self.planner,
            inputs,
            self.outbox,
            lambda: self.now,
            self._node_reported,
            on_detected=lambda finding, delay: self.detected.append((finding.check, delay)),
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _node_reported(self, caller: Caller, _: Report) -> None:
        self.reported.append(caller.node)

    def handle(self, message: Message) -> Reply:
        return self.handler(CALLER, message)

    def advance(self, seconds: float) -> None:
        self.now = Instant(self.now.wall + seconds, self.now.mono + seconds, "")

    def refused(self, message: Message, caller: Caller = CALLER) -> tuple[int, str]:
        with pytest.raises(RequestRefusedError) as caught:
            self.handler(caller, message)
        return caught.value.status, caught.value.reason


def test_a_repeated_report_gets_the_same_reply_and_is_applied_once() -> None:
    scene = Scene()
    assert scene.handle(report(5)) == Reply(VERSION, acked_sequence=5)
    assert scene.handle(report(5, digest="other")).acked_sequence == 5
    assert (scene.planner.reports["uid-1"].digest, scene.wakes, scene.reported) == ("d", 1, ["node-1"])


def test_a_message_that_is_not_applied_is_refused() -> None:
    scene = Scene()
    scene.handle(report(5))
    assert scene.refused(report(4, digest="late")) == (409, "used-sequence")
    assert scene.refused(report(9, "other", digest="of another boot")) == (409, "other-boot")
    assert scene.refused(beat(boot="other")) == (409, "other-boot")
    assert (scene.planner.reports["uid-1"].digest, scene.wakes) == ("d", 1)
    scene.advance(30.0)
    scene.handle(report(1, "rebooted", digest="of the boot after"))
    assert (scene.planner.reports["uid-1"].digest, scene.wakes) == ("of the boot after", 2)


def test_a_single_message_of_a_forged_boot_does_not_silence_the_node() -> None:
    scene = Scene()
    scene.handle(report(1, "true"))
    scene.advance(40.0)
    scene.handle(report(1, "forged", digest="forged", fatal=True))
    replies: list[object] = []
    for number in range(6):
        scene.advance(10.0)
        try:
            replies.append(scene.handle(report(2 + number, "true")).acked_sequence)
        except RequestRefusedError as refused:
            replies.append(str(refused).partition(":")[0])
    assert replies == ["another boot of this node is reporting", 3, 4, 5, 6, 7]
    assert scene.planner.reports["uid-1"].boot_id == "true"


def test_a_refused_message_changes_no_state() -> None:
    scene = Scene()
    [instruction] = instructions(replace(CLEAR, findings=CLEAR.findings[:1]))
    scene.handle(report(5))
    scene.outbox.run([replace(CLEAR, findings=CLEAR.findings[:1])])
    scene.advance(20.0)
    forged = replace(beat(boot="forged"), acknowledged=(instruction.id,))
    scene.refused(forged)
    scene.refused(replace(forged, boot_id="b", sequence=4))
    scene.handle(beat(sequence=5))
    assert scene.outbox.pending("uid-1") == (instruction,)
    assert scene.planner.last_reports["uid-1"] == 100.0


def test_a_token_of_a_replaced_node_is_refused() -> None:
    scene = Scene()
    scene.planner.update_node(InventoryNode("uid-1", "node-1", gpus=8))
    scene.handle(report(1))
    scene.planner.update_node(InventoryNode("uid-2", "node-1", gpus=8))
    assert scene.refused(report(2)) == (403, "node-replaced")
    assert scene.refused(beat()) == (403, "node-replaced")
    assert scene.handler(Caller("node-1", "uid-2"), report(3)).acked_sequence == 3


def test_refusals_are_listed_by_node_for_ten_minutes() -> None:
    scene = Scene()
    for _ in range(3):
        refused = RequestRefusedError(409, "problem: remedy", reason="other-boot")
        scene.handler.message_refused("node-1", refused)
        scene.advance(60.0)
    [refusal] = scene.handler.refusals.recent(scene.now.mono)
    assert (refusal.node, refusal.message, refusal.count) == ("node-1", "problem: remedy", 3)
    assert refusal.last == 220.0
    scene.advance(600.0)
    assert scene.handler.refusals.recent(scene.now.mono) == ()
    scene.handler.message_refused("node-1", RequestRefusedError(400, "problem: remedy"))
    assert scene.handler.refusals.recent(scene.now.mono)[0].count == 1
    assert scene.handler.refusals.counts == {"other-boot": 3, "unreadable": 1}


def test_a_heartbeat_confirms_the_latest_report_or_requests_it_again() -> None:
    scene = Scene()
    assert scene.handle(beat(sequence=0)).resend
    scene.handle(report())
    scene.now = Instant(1e9, 160.0, "")
    assert not scene.handle(beat()).resend
    assert scene.planner.last_reports["uid-1"] == 160.0
    assert scene.handle(beat("changed")).resend
    scene.advance(30.0)
    assert scene.handle(beat(boot="rebooted")).resend


def test_instructions_are_on_every_reply_until_they_are_acknowledged() -> None:
    scene = Scene()
    first, second = instructions(CLEAR)
    scene.outbox.run([CLEAR])
    assert scene.handle(report()).instructions == (first, second)
    scene.outbox.run([CLEAR])
    assert scene.handle(beat()).instructions == (first, second)
    assert scene.handle(replace(beat(), acknowledged=(first.id,))).instructions == (second,)
    scene.outbox.run([CLEAR, replace(CLEAR, uid="uid-2")])
    assert scene.handle(replace(beat(), acknowledged=(second.id, "unknown"))).instructions == ()
    scene.outbox.run([])
    assert scene.handle(beat()).instructions == ()


def test_the_instructions_on_a_reply_are_limited() -> None:
    scene = Scene()
    clears = [replace(CLEAR, incident=f"{number}", created_at=1000 - number) for number in range(500)]
    scene.outbox.run(clears)
    assert scene.handle(report()).instructions == tuple(
        instruction for clear in clears[:-9:-1] for instruction in instructions(clear)
    ), "the oldest first"


def test_the_report_of_an_unknown_node_is_removed() -> None:
    scene = Scene()
    scene.handle(report(fatal=True))
    scene.handler.forget(scene.now.mono + 601.0)
    assert scene.planner.reports == {}
    assert scene.handle(beat()).resend


def test_the_delay_of_each_new_finding_is_measured() -> None:
    scene = Scene()
    scene.handle(report(1, fatal=True))  # a finding of the first report may be from before this aggregator
    scene.handle(report(2, digest="e"))
    assert scene.detected == []
    scene.handle(replace(report(3, digest="f", fatal=True), age=2.0))
    scene.handle(report(4, digest="g", fatal=True))
    assert [delay for _, delay in scene.detected] == [62.0]


def test_the_delay_of_a_finding_is_finite_for_any_age() -> None:
    scene = Scene()
    scene.handle(report(1))
    detected = report(2, digest="e", fatal=True)
    findings = tuple(replace(finding, age=1e308) for finding in detected.findings)
    scene.handle(replace(detected, age=1e308, findings=findings))
    assert [delay for _, delay in scene.detected] == [scene.now.wall]


def test_a_reply_has_the_checks_that_the_policy_allows_to_inject() -> None:
    scene = Scene()
    assert scene.handle(report()).injectable == ()
    allowed = InjectionPolicy(allowed=True, checks=("gpu-*",))
    scene.planner.set_policy(replace(AT_ONCE, injection=allowed))
    assert scene.handle(report()).injectable == ("gpu-*",)


def test_an_injected_fault_is_no_detected_finding() -> None:
    scene = Scene()
    scene.handle(report())
    injected = replace(report(2, digest="other"), injections=(ReportedInjection(finding("gpu-ecc")),))
    scene.handle(injected)
    assert scene.detected == []
    scene.handle(replace(injected, sequence=3, digest="third", findings=(finding(),)))
    assert [check for check, _ in scene.detected] == ["gpu-lost"]


def test_a_check_with_more_topologies_than_in_the_aggregator_is_logged(log: LogLines) -> None:
    scene = Scene(topologies={"gpu-lost": ("rack",)})
    scene.handle(replace(report(fatal=True), findings=(finding(topologies=("rack",)),)))
    assert log.text() == []
    scene.handle(replace(report(2, fatal=True), findings=(finding(topologies=("rack", "fabric")),)))
    [line] = log.text()
    assert line.endswith("there; start both with the same --checks check=gpu-lost")
