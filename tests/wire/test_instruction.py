from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.wire.instruction import DetachGpus, InstructionInbox, add_instructions, record_result
from nodeguard.wire.report import InstructionResult


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=30))
def test_an_instruction_is_carried_out_once(steps: list[tuple[str, bool]]) -> None:
    inbox, taken = InstructionInbox(), []
    for identity, done in steps:
        inbox, new = add_instructions(inbox, [DetachGpus(identity, 1.0), DetachGpus(identity, 1.0)])
        taken += [instruction.id for instruction in new]
        if done:
            inbox = record_result(inbox, InstructionResult(identity, done=True))
    assert len(set(taken)) == len(taken)
    assert {instruction.id for instruction in inbox.waiting} | set(inbox.done) == set(taken)
