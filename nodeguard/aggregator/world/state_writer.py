"""The latest state of an aggregator without Kubernetes, written by a thread: the event loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeguard.aggregator.world.kept import Kept, KeptError


class StateWriter:
    """Writes one state at a time, the latest; one that is replaced before its turn is never written.

    write: writes a state, in a thread, and returns how many incidents it had to leave out. Raises KeptError.
    done: is called in the event loop after each write, with why it failed, empty where it did not, and with
    how many incidents are left out.
    """

    def __init__(self, write: Callable[[Kept], int], done: Callable[[str, int], object]) -> None:
        self._write = write
        self._done = done
        self._next: Kept | None = None
        self._waiting: list[asyncio.Future[str]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way."""
        return self._task is not None and not self._task.done()

    def put(self, state: Kept) -> asyncio.Future[str]:
        """Have a state written. Returns what will be why that failed, empty where it did not."""
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._next = state
        self._waiting.append(written)
        if not self.is_busy:
            self._task = asyncio.create_task(self._run())
        return written

    async def settle(self) -> None:
        """Wait until nothing is to be written."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._next is not None:
            state, self._next = self._next, None
            waiting, self._waiting = self._waiting, []
            error, left_out = "", 0
            try:
                left_out = await asyncio.to_thread(self._write, state)
            except KeptError as failed:
                error = str(failed)
            except Exception as failed:  # noqa: BLE001 - whatever it is, the next write may succeed
                error = f"error in the aggregator itself, please report it: {type(failed).__name__}: {failed}"
            self._done(error, left_out)
            for one in waiting:
                if not one.done():
                    one.set_result(error)
