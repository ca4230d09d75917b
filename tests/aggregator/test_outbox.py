from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.outbox import InstructionOutbox, instructions
from nodeguard.fleet.act.progress import ActionOutcome
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.wire.instruction import ClearFinding, DetachGpus
from nodeguard.wire.report import InstructionResult

GPU = "gpu/0000:3b:00"
CLEAR = NodeAction(
    ActionKind.CLEAR, "node-1", "uid-1", "Ann", 100, incident="i", state=ActionState.RUNNING,
    findings=(FindingKey("gpu-ecc", GPU), FindingKey("gpu-lost", GPU)),
)  # fmt: skip
FIRST, SECOND = (instruction.id for instruction in instructions(CLEAR))


def test_a_clear_has_an_instruction_for_each_finding() -> None:
    assert [instruction for instruction in instructions(CLEAR) if isinstance(instruction, ClearFinding)] == [
        ClearFinding(FIRST, "gpu-ecc", GPU, by="Ann"),
        ClearFinding(SECOND, "gpu-lost", GPU, by="Ann"),
    ]


def test_the_ids_are_the_same_for_all_attempts_and_differ_between_requests() -> None:
    """Also those of an aggregator before actions, which agents may have carried out."""
    assert FIRST == "clear/784ec26e2e1820fc49c8caf1"
    again = replace(CLEAR, attempt=2, created_at=200)
    assert instructions(again) == instructions(CLEAR)
    for other in (replace(CLEAR, request="Bob"), replace(CLEAR, occurrence=2), replace(CLEAR, incident="j")):
        assert {instruction.id for instruction in instructions(other)}.isdisjoint({FIRST, SECOND})


def test_a_detach_is_one_instruction() -> None:
    detach = NodeAction(ActionKind.DETACH_GPUS, "node-1", "uid-1", "Ann", 100, gpus=(GPU,), seconds=60)
    assert instructions(detach) == (DetachGpus(detach.key, 60.0, (GPU,)),)


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        (
            [
                InstructionResult(FIRST, done=True, message="a"),
                InstructionResult(SECOND, done=True, message="b"),
            ],
            ActionOutcome(ActionState.SUCCEEDED, 2, "a; b"),
        ),
        (
            [InstructionResult(FIRST, message="it holds"), InstructionResult(SECOND, message="it holds")],
            ActionOutcome(ActionState.FAILED, 0, "it holds"),
        ),
        ([InstructionResult(FIRST, done=True, message="a")], ActionOutcome(ActionState.FAILED, 1, "a")),
        ([], ActionOutcome(ActionState.UNKNOWN, 0, "the agent's version reports no results")),
    ],
)
def test_the_outcome_needs_an_answer_to_each_instruction(
    results: list[InstructionResult], outcome: ActionOutcome
) -> None:
    outbox = InstructionOutbox()
    outbox.run([CLEAR])
    assert outbox.outcomes() == {}
    outbox.acknowledge("uid-1", [FIRST], results[:1])
    assert outbox.outcomes() == {}
    outbox.acknowledge("uid-2", [SECOND], results[1:])
    assert outbox.outcomes() == {}, "an answer of another node"
    outbox.acknowledge("uid-1", [SECOND], results[1:])
    assert outbox.outcomes() == {CLEAR.key: outcome}


def test_answers_are_kept_while_other_actions_begin_and_end() -> None:
    calls: list[str] = []
    outbox = InstructionOutbox(lambda: calls.append("answer"))
    other = replace(CLEAR, incident="j")
    outbox.run([CLEAR])
    outbox.acknowledge("uid-1", [FIRST])
    outbox.run([CLEAR, other])
    assert {instruction.id for instruction in outbox.pending("uid-1")} == {
        SECOND, *(instruction.id for instruction in instructions(other))
    }  # fmt: skip
    outbox.acknowledge("uid-1", [SECOND, "unknown"])
    outbox.acknowledge("uid-1", [SECOND])
    assert calls == ["answer"] * 2
    assert list(outbox.outcomes()) == [CLEAR.key]
    outbox.run([other])
    assert list(outbox.outcomes()) == []
