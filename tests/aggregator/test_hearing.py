from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.hearing import Hearing
from nodeguard.aggregator.identity.caller import Caller, RefusedError
from nodeguard.aggregator.outbox import Outbox, clears
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.incident import ClearAnswer, Decision, Incident, State, Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.node import Node
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Answered, Heartbeat, Message, Report
from tests.fleet.scene import AT_ONCE, CHECKS, finding, in_order

ONE = Caller("node-1", "uid-1")


def report(sequence: int = 1, boot: str = "b", *, digest: str = "d", fatal: bool = False) -> Report:
    return Report(
        version=VERSION, node="node-1", boot_id=boot, sequence=sequence, digest=digest,
        health=Health.FATAL if fatal else Health.OK,
        findings=(finding(),) if fatal else (), proven=() if fatal else (in_order(),),
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
        self.outbox = Outbox()
        self.news = 0
        self.met: list[str] = []
        self.now = Instant(1e9, 100.0, "")
        self.hearing = Hearing(self.planner, self.outbox, lambda: self.now, self._news, self._met)

    def _news(self) -> None:
        self.news += 1

    def _met(self, caller: Caller, _: Report) -> None:
        self.met.append(caller.node)

    def hear(self, message: Message) -> Reply:
        return self.hearing(ONE, message)

    def later(self, seconds: float) -> None:
        self.now = Instant(self.now.wall + seconds, self.now.mono + seconds, "")

    def refused(self, message: Message, caller: Caller = ONE) -> tuple[int, str]:
        with pytest.raises(RefusedError) as found:
            self.hearing(caller, message)
        return found.value.status, found.value.reason


def test_a_report_is_applied_once_and_repeated_with_the_same_answer() -> None:
    ear = Ear()
    assert ear.hear(report(5)) == Reply(VERSION, heard=5)
    assert ear.hear(report(5, digest="other")).heard == 5
    assert (ear.planner.heard["uid-1"].digest, ear.news, ear.met) == ("d", 1, ["node-1"])


def test_a_message_that_is_not_applied_is_never_answered_as_accepted() -> None:
    ear = Ear()
    ear.hear(report(5))
    assert ear.refused(report(4, digest="late")) == (409, "used-sequence")
    assert ear.refused(report(9, "other", digest="of another boot")) == (409, "other-boot")
    assert ear.refused(beat(boot="other")) == (409, "other-boot")
    assert (ear.planner.heard["uid-1"].digest, ear.news) == ("d", 1)
    ear.later(30.0)
    ear.hear(report(1, "rebooted", digest="of the boot after"))
    assert (ear.planner.heard["uid-1"].digest, ear.news) == ("of the boot after", 2)


def test_one_message_of_a_forged_boot_mutes_no_node() -> None:
    ear = Ear()
    ear.hear(report(1, "true"))
    ear.later(40.0)
    ear.hear(report(1, "forged", digest="forged", fatal=True))
    answers: list[object] = []
    for number in range(6):
        ear.later(10.0)
        try:
            answers.append(ear.hear(report(2 + number, "true")).heard)
        except RefusedError as refused:
            answers.append(str(refused).partition(":")[0])
    assert answers == ["another boot of this node is reporting", 3, 4, 5, 6, 7]
    assert ear.planner.heard["uid-1"].boot_id == "true"


def test_a_refused_message_does_nothing_at_all() -> None:
    ear = Ear()
    incident = Incident("i", "node-1", "uid-1", "node", "c", Health.FATAL, State.MARKED, 1.0, 1.0)
    decision = Decision("i", clear="Ann")
    asked = clears(incident, decision)
    ear.hear(report(5))
    ear.outbox.clear(incident, decision)
    ear.later(20.0)
    forged = replace(beat(boot="forged"), acknowledged=(asked[0].id,))
    ear.refused(forged)
    ear.refused(replace(forged, boot_id="b", sequence=4))
    ear.hear(beat(sequence=5))
    assert ear.outbox.of("uid-1") == asked
    assert ear.planner.last["uid-1"] == 100.0


def test_a_token_of_a_node_that_was_replaced_is_refused() -> None:
    ear = Ear()
    ear.planner.node(Node("node-1", "uid-1", gpus=8))
    ear.hear(report(1))
    ear.planner.node(Node("node-1", "uid-2", gpus=8))
    assert ear.refused(report(2)) == (403, "node-replaced")
    assert ear.refused(beat()) == (403, "node-replaced")
    assert ear.hearing(Caller("node-1", "uid-2"), report(3)).heard == 3


def test_what_was_refused_is_known_by_node_for_a_while() -> None:
    ear = Ear()
    for _ in range(3):
        ear.hearing.refused("node-1", RefusedError(409, "why: remedy", reason="other-boot"))
        ear.later(60.0)
    [one] = ear.hearing.refusals.recent(ear.now.mono)
    assert (one.node, one.message, one.count, one.since, one.last) == (
        "node-1",
        "why: remedy",
        3,
        100.0,
        220.0,
    )
    assert ear.hearing.refusals.of("node-1", ear.now.mono) == one
    assert ear.hearing.refusals.of("node-2", ear.now.mono) is None
    ear.later(600.0)
    assert ear.hearing.refusals.recent(ear.now.mono) == ()
    ear.hearing.refused("node-1", RefusedError(400, "why: remedy"))
    assert ear.hearing.refusals.recent(ear.now.mono)[0].count == 1
    assert ear.hearing.refusals.counts == {"other-boot": 3, "unreadable": 1}


def test_a_heartbeat_stands_for_the_report_that_is_known() -> None:
    ear = Ear()
    assert ear.hear(beat(sequence=0)).resend
    ear.hear(report())
    ear.now = Instant(1e9, 160.0, "")
    assert not ear.hear(beat()).resend
    assert ear.planner.last["uid-1"] == 160.0
    assert ear.hear(beat("changed")).resend
    ear.later(30.0)
    assert ear.hear(beat(boot="rebooted")).resend


FAULT = Incident("i", "node-1", "uid-1", "gpu/0000:3b:00", "gpu-lost", Health.FATAL, State.MARKED, 1.0, 1.0)
FAULTS = replace(
    FAULT,
    symptoms=(
        Symptom("gpu-ecc", "gpu/0000:3b:00", Health.FATAL),
        Symptom("gpu-lost", "gpu/0000:3b:00", Health.FATAL),
    ),
)
ANN = Decision("i", clear="Ann")


def test_what_is_asked_rides_on_every_reply_until_it_is_done() -> None:
    ear = Ear()
    asked = clears(FAULTS, ANN)
    assert [(one.check, one.slot, one.by) for one in asked] == [
        ("gpu-ecc", "gpu/0000:3b:00", "Ann"),
        ("gpu-lost", "gpu/0000:3b:00", "Ann"),
    ]
    ear.outbox.clear(FAULTS, ANN)
    ear.outbox.clear(FAULTS, ANN)
    assert ear.hear(report()).instructions == asked
    assert ear.hear(beat()).instructions == asked
    assert ear.hear(replace(beat(), acknowledged=(asked[0].id,))).instructions == asked[1:]
    assert ear.hear(replace(beat(), acknowledged=(asked[1].id, "unknown"))).instructions == ()
    assert clears(FAULTS, Decision("i")) == ()
    assert {one.id for one in clears(FAULTS, Decision("i", clear="Bob"))}.isdisjoint(one.id for one in asked)
    # A mark without a finding is cleared by its cause.
    assert [(one.check, one.slot) for one in clears(FAULT, ANN)] == [("gpu-lost", "gpu/0000:3b:00")]


def test_what_became_of_a_clear_is_known_once_the_agent_has_answered() -> None:
    ear = Ear()
    first, second = clears(FAULTS, ANN)
    assert ear.outbox.answered(ANN) == ANN
    ear.outbox.clear(FAULTS, ANN)
    ear.hear(report())
    refused = Answered(first.id, said="gpu-ecc is not cleared: its condition holds now")
    ear.hear(replace(beat(), acknowledged=(first.id,), answers=(refused,)))
    assert ear.outbox.answered(ANN).answer == ClearAnswer.WAITING
    ear.hear(
        replace(beat(), acknowledged=(second.id,), answers=(Answered(second.id, said="nor is gpu-lost"),))
    )
    answer = ear.outbox.answered(ANN)
    assert (answer.answer, answer.answer_says) == (
        ClearAnswer.REFUSED,
        "gpu-ecc is not cleared: its condition holds now; nor is gpu-lost",
    )
    # Asked again, by a decision of its own.
    bob = Decision("i", clear="Bob")
    ear.outbox.clear(FAULTS, bob)
    assert ear.outbox.answered(ANN) == ANN
    first, second = clears(FAULTS, bob)
    done = (Answered(first.id, done=True, said="gpu-ecc is cleared"), Answered(second.id, said="no"))
    ear.hear(replace(beat(), acknowledged=(first.id, second.id), answers=done))
    assert ear.outbox.answered(bob).answer == ClearAnswer.PARTLY
    # What is not answered is not known to be done.
    dan = Decision("i", clear="Dan")
    ear.outbox.clear(FAULTS, dan)
    first, second = clears(FAULTS, dan)
    only = (Answered(first.id, done=True, said="gpu-ecc is cleared"),)
    ear.hear(replace(beat(), acknowledged=(first.id, second.id), answers=only))
    assert ear.outbox.answered(dan).answer == ClearAnswer.PARTLY
    # An agent of an older version answers nothing.
    carol = Decision("i", clear="Carol")
    ear.outbox.clear(FAULTS, carol)
    ear.hear(replace(beat(), acknowledged=tuple(one.id for one in clears(FAULTS, carol))))
    assert ear.outbox.answered(carol) == carol


def test_nobody_can_be_asked_for_more_than_a_reply_holds() -> None:
    ear = Ear()
    for number in range(500):
        ear.outbox.clear(replace(FAULT, name=f"{number}"), Decision(f"{number}", clear="Ann"))
    assert len(ear.hear(report()).instructions) == 16
    first, last = Decision("0", clear="Ann"), Decision("499", clear="Ann")
    assert ear.outbox.answered(first).answer == ClearAnswer.WAITING
    assert ear.outbox.answered(last).answer is None, "there was no room to ask"
    ear.outbox.forget("uid-1")
    assert ear.outbox.answered(first).answer is None
    assert ear.hear(report(2)).instructions == ()


def test_who_is_no_node_is_forgotten() -> None:
    ear = Ear()
    ear.hear(report(fatal=True))
    ear.hearing.forget(ear.now.mono + 601.0)
    assert ear.planner.heard == {}
    assert ear.hear(beat()).resend
