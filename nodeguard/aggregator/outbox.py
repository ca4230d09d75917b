"""The instruction outbox: sends instructions to agents on replies until they acknowledge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.mark_requests import resource
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.incident import ClearAnswer, Incident, OperatorDecision
from nodeguard.wire.instruction import ClearFinding, Instruction
from nodeguard.wire.report import InstructionResult

# Instructions on one reply; the rest follow on the next.
_MAX_INSTRUCTIONS = 16

# Waiting instructions of one node: more are not made on purpose.
_WAITING = 256

# Clears with stored answers, the latest.
_CLEARS = 1000

_NAME = 200


class _Clear(Struct):
    """A clear of one incident. uid: of its Node. by: the operator and the time. ids: of its instructions.
    done: ids that the agent has carried out; answers: to these.
    """

    uid: str
    by: str
    ids: tuple[str, ...]
    done: set[str]
    answers: dict[str, InstructionResult]


class InstructionOutbox:
    """Instructions by uid of the Node. The id of an instruction depends on the decision only: every replica
    makes the same one, and an agent carries it out once.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Instruction]] = {}
        self._clears: dict[str, _Clear] = {}
        # Names of incidents by the id of their instructions.
        self._incidents: dict[str, str] = {}

    def pending(self, uid: str) -> tuple[Instruction, ...]:
        """Return the next instructions of a node."""
        waiting = self._waiting.get(uid)
        return tuple(waiting.values())[:_MAX_INSTRUCTIONS] if waiting else ()

    def clear(
        self, incident: Incident, decision: OperatorDecision, report: LatestReport | None = None
    ) -> None:
        """Add the instructions for an operator's clear of an incident, once for each decision. report: of
        its node.
        """
        wanted = clear_instructions(incident, decision, report)
        existing = self._clears.get(incident.name)
        if not wanted or (existing is not None and existing.by == decision.clear):
            return
        self._forget_clear(incident.name)
        waiting = self._waiting.setdefault(incident.uid, {})
        wanted = wanted[: max(0, _WAITING - len(waiting))]
        if not wanted:
            return
        waiting.update((instruction.id, instruction) for instruction in wanted)
        ids = tuple(instruction.id for instruction in wanted)
        self._clears[incident.name] = _Clear(incident.uid, decision.clear, ids, set(), {})
        self._incidents.update((instruction.id, incident.name) for instruction in wanted)
        while len(self._clears) > _CLEARS:
            self._forget_clear(next(iter(self._clears)))

    def acknowledge(self, uid: str, ids: Iterable[str], answers: Iterable[InstructionResult] = ()) -> None:
        """Remove the instructions that a node has carried out. answers: their results."""
        waiting = self._waiting.get(uid, {})
        results = {answer.id: answer for answer in answers}
        for name in ids:
            if waiting.pop(name, None) is None:
                continue
            clear = self._clears.get(self._incidents.get(name, ""))
            if clear is not None:
                clear.done.add(name)
                if name in results:
                    clear.answers[name] = results[name]
        if not waiting:
            self._waiting.pop(uid, None)

    def with_answers(self, decisions: Mapping[str, OperatorDecision]) -> dict[str, OperatorDecision]:
        """Return decisions with the results of their clears, as far as they are available."""
        return {name: self.with_answer(decision) for name, decision in decisions.items()}

    def with_answer(self, decision: OperatorDecision) -> OperatorDecision:
        """Return a decision with the result of its clear, as far as it is available."""
        clear = self._clears.get(decision.incident)
        if clear is None or clear.by != decision.clear:
            return decision
        if len(clear.done) < len(clear.ids):
            return replace(decision, answer=ClearAnswer.WAITING)
        # An agent of an older version sends no results.
        answers = [clear.answers[name] for name in clear.ids if name in clear.answers]
        if not answers:
            return decision
        done = sum(answer.done for answer in answers)
        if done == len(clear.ids):
            answer = ClearAnswer.DONE
        else:
            answer = ClearAnswer.PARTLY if done else ClearAnswer.REFUSED
        message = "; ".join(dict.fromkeys(answer.message for answer in answers if answer.message))
        return replace(decision, answer=answer, answer_message=message)

    def forget(self, uid: str) -> None:
        """Remove the instructions of a deleted node."""
        self._waiting.pop(uid, None)
        for name in [name for name, clear in self._clears.items() if clear.uid == uid]:
            self._forget_clear(name)

    def _forget_clear(self, incident: str) -> None:
        clear = self._clears.pop(incident, None)
        for name in clear.ids if clear is not None else ():
            self._incidents.pop(name, None)


def clear_instructions(
    incident: Incident, decision: OperatorDecision, report: LatestReport | None = None
) -> tuple[ClearFinding, ...]:
    """Return the instructions for a clear: one for each finding of the incident, and for a mark without a
    finding, one for its cause. None for an incident of no single Node. report: of the node, with the findings
    that the incident does not list. Pure.
    """
    if not (decision.clear and incident.node):
        return ()
    findings = {(symptom.check, symptom.target) for symptom in incident.symptoms} or {
        (incident.cause, incident.target)
    }
    for finding, _, injected in report.faults() if report is not None and incident.symptoms_omitted else ():
        if (resource(finding), injected) == (incident.target, incident.injected):
            findings.add((finding.check, finding.target))
    return tuple(
        ClearFinding(
            id=f"clear/{_hashed(incident.name, decision.clear, check, target)}",
            check=check,
            target=target,
            by=decision.clear[:_NAME],
        )
        for check, target in sorted(findings)
    )


def _hashed(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
