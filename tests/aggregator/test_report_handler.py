from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.outbox import InstructionOutbox, clear_instructions
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.incident import ClearAnswer, Incident, IncidentState, OperatorDecision, Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.node import Node
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, InstructionResult, Message, Report
from tests.fleet.scene import AT_ONCE, CHECKS, finding, in_order

ONE = Caller("node-1", "uid-1")


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


class Ear:
    """A hearing, what it leads to, and a clock."""

    def __init__(self) -> None:
        self.planner = Planner(AT_ONCE, CHECKS)
        self.outbox = InstructionOutbox()
        self.news = 0
        self.met: list[str] = []
        self.now = Instant(1e9, 100.0, "")
        self.hearing = ReportHandler(self.planner, self.outbox, lambda: self.now, self._news, self._met)

    def _news(self) -> None:
        self.news += 1

    def _met(self, caller: Caller, _: Report) -> None:
        self.met.append(caller.node)

    def hear(self, message: Message) -> Reply:
        return self.hearing(ONE, message)

    def later(self, seconds: float) -> None:
        self.now = Instant(self.now.wall + seconds, self.now.mono + seconds, "")

    def refused(self, message: Message, caller: Caller = ONE) -> tuple[int, str]:
        with pytest.raises(RequestRefusedError) as found:
            self.hearing(caller, message)
        return found.value.status, found.value.reason


def test_a_report_is_applied_once_and_repeated_with_the_same_answer() -> None:
    ear = Ear()
    assert ear.hear(report(5)) == Reply(VERSION, acked_sequence=5)
    assert ear.hear(report(5, digest="other")).acked_sequence == 5
    assert (ear.planner.reports["uid-1"].digest, ear.news, ear.met) == ("d", 1, ["node-1"])


def test_a_message_that_is_not_applied_is_never_answered_as_accepted() -> None:
    ear = Ear()
    ear.hear(report(5))
    assert ear.refused(report(4, digest="late")) == (409, "used-sequence")
    assert ear.refused(report(9, "other", digest="of another boot")) == (409, "other-boot")
    assert ear.refused(beat(boot="other")) == (409, "other-boot")
    assert (ear.planner.reports["uid-1"].digest, ear.news) == ("d", 1)
    ear.later(30.0)
    ear.hear(report(1, "rebooted", digest="of the boot after"))
    assert (ear.planner.reports["uid-1"].digest, ear.news) == ("of the boot after", 2)


def test_one_message_of_a_forged_boot_mutes_no_node() -> None:
    ear = Ear()
    ear.hear(report(1, "true"))
    ear.later(40.0)
    ear.hear(report(1, "forged", digest="forged", fatal=True))
    answers: list[object] = []
    for number in range(6):
        ear.later(10.0)
        try:
            answers.append(ear.hear(report(2 + number, "true")).acked_sequence)
        except RequestRefusedError as refused:
            answers.append(str(refused).partition(":")[0])
    assert answers == ["another boot of this node is reporting", 3, 4, 5, 6, 7]
    assert ear.planner.reports["uid-1"].boot_id == "true"


def test_a_refused_message_does_nothing_at_all() -> None:
    ear = Ear()
    incident = Incident("i", "node-1", "uid-1", "node", "c", Health.FATAL, IncidentState.MARKED, 1.0, 1.0)
    decision = OperatorDecision("i", clear="Ann")
    asked = clear_instructions(incident, decision)
    ear.hear(report(5))
    ear.outbox.clear(incident, decision)
    ear.later(20.0)
    forged = replace(beat(boot="forged"), acknowledged=(asked[0].id,))
    ear.refused(forged)
    ear.refused(replace(forged, boot_id="b", sequence=4))
    ear.hear(beat(sequence=5))
    assert ear.outbox.pending("uid-1") == asked
    assert ear.planner.last_reports["uid-1"] == 100.0


def test_a_token_of_a_node_that_was_replaced_is_refused() -> None:
    ear = Ear()
    ear.planner.update_node(Node("node-1", "uid-1", gpus=8))
    ear.hear(report(1))
    ear.planner.update_node(Node("node-1", "uid-2", gpus=8))
    assert ear.refused(report(2)) == (403, "node-replaced")
    assert ear.refused(beat()) == (403, "node-replaced")
    assert ear.hearing(Caller("node-1", "uid-2"), report(3)).acked_sequence == 3


def test_what_was_refused_is_known_by_node_for_a_while() -> None:
    ear = Ear()
    for _ in range(3):
        ear.hearing.message_refused("node-1", RequestRefusedError(409, "why: remedy", reason="other-boot"))
        ear.later(60.0)
    [one] = ear.hearing.refusals.recent(ear.now.mono)
    assert (one.node, one.message, one.count, one.since, one.last) == (
        "node-1",
        "why: remedy",
        3,
        100.0,
        220.0,
    )
    assert ear.hearing.refusals.latest("node-1", ear.now.mono) == one
    assert ear.hearing.refusals.latest("node-2", ear.now.mono) is None
    ear.later(600.0)
    assert ear.hearing.refusals.recent(ear.now.mono) == ()
    ear.hearing.message_refused("node-1", RequestRefusedError(400, "why: remedy"))
    assert ear.hearing.refusals.recent(ear.now.mono)[0].count == 1
    assert ear.hearing.refusals.counts == {"other-boot": 3, "unreadable": 1}


def test_a_heartbeat_stands_for_the_report_that_is_known() -> None:
    ear = Ear()
    assert ear.hear(beat(sequence=0)).resend
    ear.hear(report())
    ear.now = Instant(1e9, 160.0, "")
    assert not ear.hear(beat()).resend
    assert ear.planner.last_reports["uid-1"] == 160.0
    assert ear.hear(beat("changed")).resend
    ear.later(30.0)
    assert ear.hear(beat(boot="rebooted")).resend


FAULT = Incident(
    "i", "node-1", "uid-1", "gpu/0000:3b:00", "gpu-lost", Health.FATAL, IncidentState.MARKED, 1.0, 1.0
)
FAULTS = replace(
    FAULT,
    symptoms=(
        Symptom("gpu-ecc", "gpu/0000:3b:00", Health.FATAL),
        Symptom("gpu-lost", "gpu/0000:3b:00", Health.FATAL),
    ),
)
ANN = OperatorDecision("i", clear="Ann")


def test_what_is_asked_rides_on_every_reply_until_it_is_done() -> None:
    ear = Ear()
    asked = clear_instructions(FAULTS, ANN)
    assert [(one.check, one.target, one.by) for one in asked] == [
        ("gpu-ecc", "gpu/0000:3b:00", "Ann"),
        ("gpu-lost", "gpu/0000:3b:00", "Ann"),
    ]
    ear.outbox.clear(FAULTS, ANN)
    ear.outbox.clear(FAULTS, ANN)
    assert ear.hear(report()).instructions == asked
    assert ear.hear(beat()).instructions == asked
    assert ear.hear(replace(beat(), acknowledged=(asked[0].id,))).instructions == asked[1:]
    assert ear.hear(replace(beat(), acknowledged=(asked[1].id, "unknown"))).instructions == ()
    assert clear_instructions(FAULTS, OperatorDecision("i")) == ()
    assert {one.id for one in clear_instructions(FAULTS, OperatorDecision("i", clear="Bob"))}.isdisjoint(
        one.id for one in asked
    )
    # A mark without a finding is cleared by its cause.
    assert [(one.check, one.target) for one in clear_instructions(FAULT, ANN)] == [
        ("gpu-lost", "gpu/0000:3b:00")
    ]


def test_what_became_of_a_clear_is_known_once_the_agent_has_answered() -> None:
    ear = Ear()
    first, second = clear_instructions(FAULTS, ANN)
    assert ear.outbox.with_answer(ANN) == ANN
    ear.outbox.clear(FAULTS, ANN)
    ear.hear(report())
    refused = InstructionResult(first.id, message="gpu-ecc is not cleared: its condition holds now")
    ear.hear(replace(beat(), acknowledged=(first.id,), results=(refused,)))
    assert ear.outbox.with_answer(ANN).answer == ClearAnswer.WAITING
    ear.hear(
        replace(
            beat(),
            acknowledged=(second.id,),
            results=(InstructionResult(second.id, message="nor is gpu-lost"),),
        )
    )
    answer = ear.outbox.with_answer(ANN)
    assert (answer.answer, answer.answer_message) == (
        ClearAnswer.REFUSED,
        "gpu-ecc is not cleared: its condition holds now; nor is gpu-lost",
    )
    # Asked again, by a decision of its own.
    bob = OperatorDecision("i", clear="Bob")
    ear.outbox.clear(FAULTS, bob)
    assert ear.outbox.with_answer(ANN) == ANN
    first, second = clear_instructions(FAULTS, bob)
    done = (
        InstructionResult(first.id, done=True, message="gpu-ecc is cleared"),
        InstructionResult(second.id, message="no"),
    )
    ear.hear(replace(beat(), acknowledged=(first.id, second.id), results=done))
    assert ear.outbox.with_answer(bob).answer == ClearAnswer.PARTLY
    # What is not answered is not known to be done.
    dan = OperatorDecision("i", clear="Dan")
    ear.outbox.clear(FAULTS, dan)
    first, second = clear_instructions(FAULTS, dan)
    only = (InstructionResult(first.id, done=True, message="gpu-ecc is cleared"),)
    ear.hear(replace(beat(), acknowledged=(first.id, second.id), results=only))
    assert ear.outbox.with_answer(dan).answer == ClearAnswer.PARTLY
    # An agent of an older version answers nothing.
    carol = OperatorDecision("i", clear="Carol")
    ear.outbox.clear(FAULTS, carol)
    ear.hear(replace(beat(), acknowledged=tuple(one.id for one in clear_instructions(FAULTS, carol))))
    assert ear.outbox.with_answer(carol) == carol


def test_nobody_can_be_asked_for_more_than_a_reply_holds() -> None:
    ear = Ear()
    for number in range(500):
        ear.outbox.clear(replace(FAULT, name=f"{number}"), OperatorDecision(f"{number}", clear="Ann"))
    assert len(ear.hear(report()).instructions) == 16
    first, last = OperatorDecision("0", clear="Ann"), OperatorDecision("499", clear="Ann")
    assert ear.outbox.with_answer(first).answer == ClearAnswer.WAITING
    assert ear.outbox.with_answer(last).answer is None, "there was no room to ask"
    ear.outbox.forget("uid-1")
    assert ear.outbox.with_answer(first).answer is None
    assert ear.hear(report(2)).instructions == ()


def test_who_is_no_node_is_forgotten() -> None:
    ear = Ear()
    ear.hear(report(fatal=True))
    ear.hearing.forget(ear.now.mono + 601.0)
    assert ear.planner.reports == {}
    assert ear.hear(beat()).resend
