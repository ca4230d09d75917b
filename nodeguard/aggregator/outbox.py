"""What people ask of agents: instructions that ride back on replies until they are acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from nodeguard.model.incident import Decision, Incident
from nodeguard.wire.instruction import ClearCheck, Instruction

# Instructions on one reply; the rest ride on the next.
_MOST = 16

# Of one node: more are of somebody who does not mean it.
_WAITING = 256

_NAME = 200


class Outbox:
    """By uid of the Node. What is derived from a decision has the same id whoever derives it, and whenever;
    an agent carries out each once.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Instruction]] = {}

    def of(self, uid: str) -> tuple[Instruction, ...]:
        """What a node is to do next."""
        waiting = self._waiting.get(uid)
        return tuple(waiting.values())[:_MOST] if waiting else ()

    def put(self, uid: str, instructions: Iterable[Instruction]) -> None:
        """Ask something of a node."""
        waiting = self._waiting.setdefault(uid, {})
        for one in instructions:
            if len(waiting) < _WAITING:
                waiting[one.id] = one

    def acknowledged(self, uid: str, ids: Iterable[str]) -> None:
        """A node has done what was asked."""
        waiting = self._waiting.get(uid)
        if waiting:
            for name in ids:
                waiting.pop(name, None)
            if not waiting:
                del self._waiting[uid]

    def forget(self, uid: str) -> None:
        """A node is no more."""
        self._waiting.pop(uid, None)


def clears(incident: Incident, decision: Decision) -> tuple[ClearCheck, ...]:
    """What an agent is asked for where a person says that an incident is over; nothing of one of no single
    Node. Pure.
    """
    if not (decision.clear and incident.node):
        return ()
    places = {(one.check, one.target) for one in incident.symptoms} | {(incident.cause, incident.resource)}
    return tuple(
        ClearCheck(
            id=f"clear/{_hashed(incident.name, decision.clear, check, slot)}",
            check=check,
            slot=slot,
            by=decision.clear[:_NAME],
        )
        for check, slot in sorted(places)
    )


def _hashed(*words: str) -> str:
    return blake2b("\0".join(words).encode(), digest_size=12).hexdigest()
