"""What a lane remembers from round to round, and what one round has brought; alike live and in replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.worker.nvml_calls import DEVICE_COUNT, DRIVER_VERSION
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult

# What a scope is remembered by: a device's index, or a mount point, whose own index changes with the list.
Key = int | str

# While these stay as they are, so does what stalled. The last two end what is asked of the system: without
# either of them it was not read to its end.
_WORLD = (DRIVER_VERSION, DEVICE_COUNT, "nvmlInit")


class Hang(Struct, frozen=True):
    """A call that not even SIGKILL ended, and the scope that it was for."""

    key: Key
    call: str


class Rest(Struct, frozen=True):
    """Why a scope rests, and what the world was like when its rest began."""

    call: str
    world: dict[str, Any]


class LaneState:
    """The scopes at rest, for as long as the lane lives, and the call that hangs, for as long as the boot.

    hang: one that a lane before this one had in this boot. Its process may be stuck still.
    """

    def __init__(self, hang: Hang | None = None) -> None:
        self._rests: dict[Key, Rest] = {}
        self.hang = hang

    def end_rest(self, key: Key | None = None) -> None:
        """End the rest of one device (by index) or mount (by path), or of all."""
        if key is None:
            self._rests.clear()
        else:
            self._rests.pop(key, None)

    def hung(self, mounts: Sequence[str] = ()) -> CallResult | None:
        """The call that hangs, its scope as these mounts count; SYSTEM for a mount that is not among them."""
        return CallResult(_scope(self.hang.key, mounts), self.hang.call) if self.hang else None

    def begin(self, mounts: Sequence[str] = ()) -> LaneRound:
        """A new round. A mount that is no longer there has had its rest."""
        for gone in [key for key in self._rests if isinstance(key, str) and key not in mounts]:
            del self._rests[gone]
        return LaneRound(self, self._rests, mounts)

    def latch(self, key: Key, call: str) -> None:
        """Remember for good that this call hangs."""
        self.hang = Hang(key, call)


def _scope(key: Key, mounts: Sequence[str]) -> int:
    if isinstance(key, int):
        return key
    return mounts.index(key) if key in mounts else SYSTEM


class LaneRound:
    """One round: what its runs have read, and what the next run leaves alone."""

    def __init__(self, memory: LaneState, rests: dict[Key, Rest], mounts: Sequence[str]) -> None:
        self._memory = memory
        self._rests = rests
        self._mounts = mounts
        self._resting = tuple(CallResult(_scope(key, mounts), rest.call) for key, rest in rests.items())
        self._entries: list[CallResult] = []
        self._stalled: list[CallResult] = []

    def skip(self) -> frozenset[int]:
        """Scopes that a run leaves alone: those at rest, and those that an earlier run of this round read."""
        return frozenset(_scope(key, self._mounts) for key in self._rests) | {
            entry.scope for entry in self._entries
        }

    def stall(self, entries: Iterable[CallResult], call: CallResult) -> bool:
        """A run ended in a call that stalled. Returns whether another run shall go on with the other scopes.

        No scope stalls twice in a round, so the runs come to an end. Of the system nothing rests: each round
        tries it again.
        """
        self._add(entries)
        self._stalled.append(call)
        if call.scope == SYSTEM:
            return False
        self._rests[self._key(call.scope)] = Rest(call.call, self._world())
        return True

    def hang(self, entries: Iterable[CallResult], call: CallResult) -> LaneResult:
        """A run ended in a call that hangs: so does the round, and every later one."""
        self._add(entries)
        self._memory.latch(self._key(call.scope), call.call)
        return self._answer(hung=CallResult(call.scope, call.call))

    def interrupt(self, entries: Iterable[CallResult], call: CallResult, *, slow: bool) -> LaneResult:
        """The round's time is over while a call is under way. slow: whether that call counts as stalled.

        Its scope does not rest, because it had less than its due. One that was still at work was not read to
        its end, so that nothing is told of it.
        """
        self._add(entry for entry in entries if slow or entry.scope != call.scope or call.scope == SYSTEM)
        if slow:
            self._stalled.append(call)
        return replace(self._answer(), cut=call)

    def end(self, entries: Iterable[CallResult] = (), missing: str = "", failed: str = "") -> LaneResult:
        """The round is over. Rests that began in another world, with another driver, say, end with it.

        missing, failed: see Answer.
        """
        self._add(entries)
        world = self._world() if self._rests else {}
        if not world.keys().isdisjoint(_WORLD[1:]):
            for key in [key for key, rest in self._rests.items() if rest.world != world]:
                del self._rests[key]
        return replace(self._answer(), missing=missing, failed=failed)

    def _answer(self, hung: CallResult | None = None) -> LaneResult:
        return LaneResult(tuple(self._entries), tuple(self._stalled), hung, resting=self._resting)

    def _key(self, scope: int) -> Key:
        return self._mounts[scope] if self._mounts and scope != SYSTEM else scope

    def _add(self, entries: Iterable[CallResult]) -> None:
        """A second run asks the system once more what it needs itself; the first answer stands."""
        known = {entry.call for entry in self._entries if entry.scope == SYSTEM}
        self._entries += [entry for entry in entries if entry.scope != SYSTEM or entry.call not in known]

    def _world(self) -> dict[str, Any]:
        return {
            entry.call: entry.result
            for entry in self._entries
            if entry.scope == SYSTEM and entry.call in _WORLD
        }
