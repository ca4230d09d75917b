"""When the agent's memory is written down; the writing itself is done away from the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile

# Seconds. Changes that must not be lost are written at once, those that come within GAP of each other
# together; what only goes on, such as counters, after EVERY: each writing starts a process that ends with it.
_GAP = 1.0
_EVERY = 300.0
# For the last writing, at the agent's end.
_LAST = 1.0


class StateKeeper:
    """Keeps what an agent remembers in its file.

    remember: gives the memory of this moment, None where there is none yet. heed: is given each memory after
    its writing, and what was wrong with that, empty where it is on the disk.
    """

    def __init__(
        self,
        file: StateFile,
        remember: Callable[[], AgentState | None],
        heed: Callable[[AgentState, str], None],
    ) -> None:
        self._file = file
        self._remember = remember
        self._heed = heed
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[str]] = []

    def mark_changed(self) -> None:
        """Something is there that a restart must not forget."""
        self._changed.set()

    async def save_now(self) -> str:
        """Write what there is now. Returns what is wrong once that is over, empty where it is on the disk."""
        waits: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        self._changed.set()
        return await waits

    async def run(self) -> None:
        """Write whenever there is something to write, until cancelled."""
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
        """Write a last time, and let go of the disk."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await self._write(_LAST)
        self._file.close()

    async def _write(self, within: float = float("inf")) -> None:
        waiting, self._waiting = self._waiting, []
        memory, wrong = self._remember(), "nothing is known of the node yet"
        try:
            if memory is not None:
                wrong = await asyncio.to_thread(self._file.save, memory, within)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next writing may succeed
            wrong = f"{self._file.path}: please report it: {type(error).__name__}: {error}"
        if memory is not None:
            self._heed(memory, wrong)
        for one in waiting:
            one.set_result(wrong)
