"""Instructions to agents: they ride on replies until they are acknowledged, with what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.incident import ClearAnswer, Incident, OperatorDecision
from nodeguard.wire.instruction import ClearFinding, Instruction
from nodeguard.wire.report import InstructionResult

# Instructions on one reply; the rest ride on the next.
_MOST = 16

# Of one node: more are of somebody who does not mean it.
_WAITING = 256

# Clears whose answers are remembered, the latest.
_CLEARS = 1000

_NAME = 200


class _Clear(Struct):
    """A clear of one incident. uid: of its Node. said: by whom and when. ids: of its instructions. over: of
    those that the agent is done with; answers: to these.
    """

    uid: str
    said: str
    ids: tuple[str, ...]
    over: set[str]
    answers: dict[str, InstructionResult]


class InstructionOutbox:
    """By uid of the Node. What is derived from a decision has the same id whoever derives it, and whenever;
    an agent carries out each once.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Instruction]] = {}
        self._clears: dict[str, _Clear] = {}
        # Names of incidents, by the id of an instruction that clears it.
        self._incidents: dict[str, str] = {}

    def pending(self, uid: str) -> tuple[Instruction, ...]:
        """What a node is to do next."""
        waiting = self._waiting.get(uid)
        return tuple(waiting.values())[:_MOST] if waiting else ()

    def clear(self, incident: Incident, decision: OperatorDecision) -> None:
        """Ask a node's agent to clear an incident, where a person decided so; each decision once."""
        wanted = clear_instructions(incident, decision)
        known = self._clears.get(incident.name)
        if not wanted or (known is not None and known.said == decision.clear):
            return
        self._forget_clear(incident.name)
        waiting = self._waiting.setdefault(incident.uid, {})
        wanted = wanted[: max(0, _WAITING - len(waiting))]
        if not wanted:
            return
        waiting.update((one.id, one) for one in wanted)
        ids = tuple(one.id for one in wanted)
        self._clears[incident.name] = _Clear(incident.uid, decision.clear, ids, set(), {})
        self._incidents.update((one.id, incident.name) for one in wanted)
        while len(self._clears) > _CLEARS:
            self._forget_clear(next(iter(self._clears)))

    def acknowledge(self, uid: str, ids: Iterable[str], answers: Iterable[InstructionResult] = ()) -> None:
        """A node is done with what was asked. answers: what became of it."""
        waiting = self._waiting.get(uid, {})
        said = {one.id: one for one in answers}
        for name in ids:
            if waiting.pop(name, None) is None:
                continue
            clear = self._clears.get(self._incidents.get(name, ""))
            if clear is not None:
                clear.over.add(name)
                if name in said:
                    clear.answers[name] = said[name]
        if not waiting:
            self._waiting.pop(uid, None)

    def with_answer(self, decision: OperatorDecision) -> OperatorDecision:
        """Return a decision with what became of its clear, as far as that is known."""
        clear = self._clears.get(decision.incident)
        if clear is None or clear.said != decision.clear:
            return decision
        if len(clear.over) < len(clear.ids):
            return replace(decision, answer=ClearAnswer.WAITING)
        # An agent of an older version says nothing of what became of it.
        found = [clear.answers[name] for name in clear.ids if name in clear.answers]
        if not found:
            return decision
        done = sum(one.done for one in found)
        if done == len(clear.ids):
            answer = ClearAnswer.DONE
        else:
            answer = ClearAnswer.PARTLY if done else ClearAnswer.REFUSED
        says = "; ".join(dict.fromkeys(one.message for one in found if one.message))
        return replace(decision, answer=answer, answer_says=says)

    def forget(self, uid: str) -> None:
        """A node is no more."""
        self._waiting.pop(uid, None)
        for name in [name for name, clear in self._clears.items() if clear.uid == uid]:
            self._forget_clear(name)

    def _forget_clear(self, incident: str) -> None:
        clear = self._clears.pop(incident, None)
        for name in clear.ids if clear is not None else ():
            self._incidents.pop(name, None)


def clear_instructions(incident: Incident, decision: OperatorDecision) -> tuple[ClearFinding, ...]:
    """Return what a node's agent is asked for where a person says that an incident is over: to clear each
    finding, and of a mark without a finding its cause. Nothing for an incident of no single Node. Pure.
    """
    if not (decision.clear and incident.node):
        return ()
    places = {(one.check, one.target) for one in incident.symptoms} or {(incident.cause, incident.target)}
    return tuple(
        ClearFinding(
            id=f"clear/{_hashed(incident.name, decision.clear, check, slot)}",
            check=check,
            target=slot,
            by=decision.clear[:_NAME],
        )
        for check, slot in sorted(places)
    )


def _hashed(*words: str) -> str:
    return blake2b("\0".join(words).encode(), digest_size=12).hexdigest()
