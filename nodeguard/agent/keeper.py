"""When the agent state is written to its file; the write itself runs off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile

# Seconds. Important changes are written at once, those within _GAP of each other together. What only
# progresses, such as counters, is written after _EVERY: each write starts a process that ends with it.
_GAP = 1.0
_EVERY = 300.0
# For the last write, at the end of the agent.
_LAST = 1.0


class StateKeeper:
    """Writes the agent state to its file.

    capture: returns the present state, None if there is none yet. on_stored: called after each write with the
    state, and the error, empty once the state is on the disk.
    """

    def __init__(
        self,
        file: StateFile,
        capture: Callable[[], AgentState | None],
        on_stored: Callable[[AgentState, str], None],
    ) -> None:
        self._file = file
        self._capture = capture
        self._on_stored = on_stored
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[str]] = []

    def mark_changed(self) -> None:
        """Have the state written soon: it has a change that must survive a restart."""
        self._changed.set()

    async def save_now(self) -> str:
        """Write the present state. Return the error, empty once the state is on the disk."""
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._changed.set()
        return await written

    async def run(self) -> None:
        """Write whenever that is due, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY):
                    await self._changed.wait()
            self._changed.clear()
            await self._write()
            await asyncio.sleep(_GAP)
            if not self._changed.is_set():
                await asyncio.to_thread(self._file.stop_worker)

    async def end(self) -> None:
        """Write a last time, and close the file."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await self._write(_LAST)
        self._file.close()

    async def _write(self, within: float = float("inf")) -> None:
        waiting, self._waiting = self._waiting, []
        state, error = self._capture(), "there is no verdict yet"
        try:
            if state is not None:
                error = await asyncio.to_thread(self._file.save, state, within)
        except Exception as unexpected:  # noqa: BLE001 - the next write may succeed
            reason = f"{type(unexpected).__name__}: {unexpected}"
            error = f"{self._file.path}: please report it: {reason}"
        if state is not None:
            self._on_stored(state, error)
        for written in waiting:
            written.set_result(error)
