from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.wire.instruction import RunTest
from nodeguard.wire.of_verdict import report
from nodeguard.wire.order import Heard, Inbox, carried_out, heard, received
from nodeguard.wire.report import Answered
from tests.wire.scene import FACTS, NOW, verdict

REPORT = report(verdict(), NOW, FACTS)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30))
def test_no_report_is_applied_twice_or_out_of_order(sent: list[tuple[str, int]]) -> None:
    memory, applied = Heard(), []
    for boot, sequence in sent:
        memory, news = heard(memory, replace(REPORT, boot_id=boot, sequence=sequence))
        if news:
            applied.append((boot, sequence))
    assert len(set(applied)) == len(applied)
    boots = [boot for boot, _ in applied]
    assert sorted(applied, key=lambda one: (boots.index(one[0]), one[1])) == applied


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=30))
def test_an_instruction_is_new_once(given_: list[tuple[str, bool]]) -> None:
    inbox, taken = Inbox(), []
    for identity, done in given_:
        inbox, new = received(inbox, [RunTest(identity, "t"), RunTest(identity, "t")])
        taken += [one.id for one in new]
        if done:
            inbox = carried_out(inbox, Answered(identity, done=True))
    assert len(set(taken)) == len(taken)
    assert {one.id for one in inbox.waiting} | set(inbox.done) == set(taken)
