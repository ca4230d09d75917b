"""The instruction outbox: the runner of actions that agents carry out. It sends instructions on replies until
the agent acknowledges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from nodeguard.fleet.act.progress import ActionOutcome
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Instruction
from nodeguard.wire.report import InstructionResult

# Instructions on one reply; the rest follow on the next.
_MAX_INSTRUCTIONS = 16

# Characters of an operator's name.
_NAME = 200


class InstructionOutbox:
    """Instructions by uid of the Node. The id of an instruction depends on its action only: every replica
    sends the same one, and an agent carries it out once. on_answer: is called when an agent acknowledges.
    """

    def __init__(self, on_answer: Callable[[], object] = lambda: None) -> None:
        self._on_answer = on_answer
        self._running: dict[str, NodeAction] = {}
        self._waiting: dict[str, dict[str, Instruction]] = {}
        # By id of the instruction; None from an agent of an older version, which sends no results.
        self._answers: dict[str, InstructionResult | None] = {}

    def run(self, actions: Iterable[NodeAction]) -> None:
        """Send the instructions of these running actions, and of no others. Idempotent."""
        running = {action.key: action for action in actions}
        if running == self._running:
            return
        self._running = running
        self._waiting, answers = {}, {}
        for action in sorted(running.values(), key=lambda action: action.created_at):
            for instruction in instructions(action):
                if instruction.id in self._answers:
                    answers[instruction.id] = self._answers[instruction.id]
                else:
                    self._waiting.setdefault(action.uid, {})[instruction.id] = instruction
        self._answers = answers

    def pending(self, uid: str) -> tuple[Instruction, ...]:
        """Return the next instructions of a node."""
        waiting = self._waiting.get(uid)
        return tuple(waiting.values())[:_MAX_INSTRUCTIONS] if waiting else ()

    def acknowledge(self, uid: str, ids: Iterable[str], answers: Iterable[InstructionResult] = ()) -> None:
        """Remove the instructions that a node has carried out or refused. answers: their results."""
        waiting = self._waiting.get(uid)
        if not waiting:
            return
        results = {answer.id: answer for answer in answers}
        answered = [name for name in ids if waiting.pop(name, None) is not None]
        self._answers.update((name, results.get(name)) for name in answered)
        if answered:
            self._on_answer()

    def outcomes(self) -> dict[str, ActionOutcome]:
        """Return the outcomes of the running actions of which the agent has answered all instructions."""
        return {
            key: _outcome([self._answers[instruction.id] for instruction in instructions(action)])
            for key, action in self._running.items()
            if all(instruction.id in self._answers for instruction in instructions(action))
        }


def _outcome(answers: list[InstructionResult | None]) -> ActionOutcome:
    results = [answer for answer in answers if answer is not None]
    done = sum(answer.done for answer in results)
    message = "; ".join(dict.fromkeys(answer.message for answer in results if answer.message))
    if done == len(answers):
        return ActionOutcome(ActionState.SUCCEEDED, done, message)
    if not results:
        return ActionOutcome(ActionState.UNKNOWN, 0, "the agent's version reports no results")
    return ActionOutcome(ActionState.FAILED, done, message)


def instructions(action: NodeAction) -> tuple[Instruction, ...]:
    """Return the instructions of an action: of a clear, one for each finding. Pure."""
    if action.kind == ActionKind.DETACH_GPUS:
        return (DetachGpus(action.key, float(action.seconds), action.gpus),)
    return tuple(
        ClearFinding(
            id=f"clear/{_digest(action, finding)}",
            check=finding.check,
            target=finding.target,
            by=action.request[:_NAME],
        )
        for finding in action.findings
    )


def _digest(action: NodeAction, finding: FindingKey) -> str:
    """Return what is the same for all attempts of a request: an agent carries it out once."""
    occurrence = (f"{action.occurrence}",) if action.occurrence else ()
    parts = (action.incident, action.request, finding.check, finding.target, *occurrence)
    return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
