"""LaneState: stalled scopes and the hung call of a lane, from round to round; the same live and in replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.worker.nvml_calls import DEVICE_COUNT, DRIVER_VERSION
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult

# Key of a scope: a device's index, or a mount point, because its index changes with the list of mounts.
Key = int | str

# A stalled scope is called again when one of these results changes, or after end_stalls. The last two are the
# last calls of the system scope: without either of them that scope was not read completely.
_SYSTEM_CALLS = (DRIVER_VERSION, DEVICE_COUNT, "nvmlInit")


class Hang(Struct, frozen=True):
    """A call that did not end on SIGKILL, and the key of its scope."""

    key: Key
    call: str


class Stall(Struct, frozen=True):
    """A stalled call, and the system results at that time. Rounds skip its scope."""

    call: str
    system_results: dict[str, Any]


class LaneState:
    """The stalled scopes, for the life of the lane, and the hung call, for the remaining time of the boot.

    hang: the hung call of an earlier lane in this boot; its process may still hang.
    """

    def __init__(self, hang: Hang | None = None) -> None:
        self._stalls: dict[Key, Stall] = {}
        self.hang = hang

    def end_stalls(self) -> None:
        """Call the stalled scopes again in the next round."""
        self._stalls.clear()

    def hung(self, mounts: Sequence[str] = ()) -> CallResult | None:
        """Return the hung call, its scope as an index into these mounts; SYSTEM for another mount."""
        return CallResult(_scope(self.hang.key, mounts), self.hang.call) if self.hang else None

    def begin(self, mounts: Sequence[str] = ()) -> LaneRound:
        """Return a new round. The stall of a mount that no longer exists ends."""
        for key in [key for key in self._stalls if isinstance(key, str) and key not in mounts]:
            del self._stalls[key]
        return LaneRound(self, self._stalls, mounts)

    def latch(self, key: Key, call: str) -> None:
        """Record that this call hangs for the rest of the boot."""
        self.hang = Hang(key, call)


def _scope(key: Key, mounts: Sequence[str]) -> int:
    if isinstance(key, int):
        return key
    return mounts.index(key) if key in mounts else SYSTEM


class LaneRound:
    """One round: the results of its runs, and the scopes that the next run skips."""

    def __init__(self, state: LaneState, stalls: dict[Key, Stall], mounts: Sequence[str]) -> None:
        self._state = state
        self._stalls = stalls
        self._mounts = mounts
        self._skipped = tuple(CallResult(_scope(key, mounts), stall.call) for key, stall in stalls.items())
        self._results: list[CallResult] = []
        self._stalled: list[CallResult] = []

    def skip(self) -> frozenset[int]:
        """Return the scopes that a run skips: those that are stalled or that this round has read already."""
        return frozenset(_scope(key, self._mounts) for key in self._stalls) | {
            entry.scope for entry in self._results
        }

    def stall(self, results: Iterable[CallResult], call: CallResult) -> bool:
        """Record that a run ended in a stalled call; return whether another run continues with other scopes.

        No scope stalls twice in a round, so the number of runs is limited. Each round calls the
        system scope again.
        """
        self._add(results)
        self._stalled.append(call)
        if call.scope == SYSTEM:
            return False
        self._stalls[self._key(call.scope)] = Stall(call.call, self._system_results())
        return True

    def hang(self, results: Iterable[CallResult], call: CallResult) -> LaneResult:
        """Return the result of a round that ended in a hung call; later rounds do not run."""
        self._add(results)
        self._state.latch(self._key(call.scope), call.call)
        return self._result(hung=CallResult(call.scope, call.call))

    def interrupt(self, results: Iterable[CallResult], call: CallResult, *, slow: bool) -> LaneResult:
        """Return the result of a round that ended during a call. slow: whether the call counts as stalled.

        Later rounds call the scope again, because the call had less than its deadline. If the call was not
        slow, its scope was not read completely, and its results are left out.
        """
        self._add(entry for entry in results if slow or entry.scope != call.scope or call.scope == SYSTEM)
        if slow:
            self._stalled.append(call)
        return replace(self._result(), interrupted=call)

    def end(self, results: Iterable[CallResult] = (), missing: str = "", failed: str = "") -> LaneResult:
        """Return the result of a complete round. A changed system result, as of the driver, ends all stalls.

        missing, failed: see LaneResult.
        """
        self._add(results)
        system_results = self._system_results() if self._stalls else {}
        if not system_results.keys().isdisjoint(_SYSTEM_CALLS[1:]):
            for key in [key for key, stall in self._stalls.items() if stall.system_results != system_results]:
                del self._stalls[key]
        return replace(self._result(), missing=missing, failed=failed)

    def _result(self, hung: CallResult | None = None) -> LaneResult:
        return LaneResult(tuple(self._results), tuple(self._stalled), hung, skipped=self._skipped)

    def _key(self, scope: int) -> Key:
        return self._mounts[scope] if self._mounts and scope != SYSTEM else scope

    def _add(self, results: Iterable[CallResult]) -> None:
        """Add results. A second run repeats some calls of the system; the first result counts."""
        earlier = {entry.call for entry in self._results if entry.scope == SYSTEM}
        self._results += [entry for entry in results if entry.scope != SYSTEM or entry.call not in earlier]

    def _system_results(self) -> dict[str, Any]:
        return {
            entry.call: entry.result
            for entry in self._results
            if entry.scope == SYSTEM and entry.call in _SYSTEM_CALLS
        }
