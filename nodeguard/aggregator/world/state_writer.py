"""The latest state of an aggregator without Kubernetes, written by a thread: the event loop never waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from nodeguard.aggregator.world.kept import Kept, KeptError


class StateWriter:
    """Writes one state at a time: the latest, so that a state that is replaced in time is never written.

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
        """Have a state written. Returns a future: why that failed, empty where it did not."""
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._next = state
        self._waiting.append(written)
        if not self.is_busy:
            self._task = asyncio.create_task(self._run())
        return written

    async def settle(self, within: float | None = None) -> None:
        """Wait until nothing is to be written, so many seconds at most."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    def _in_thread(self, state: Kept) -> asyncio.Future[tuple[str, int]]:
        """Write a state. The thread is a daemon: while it hangs on its disk the process can end."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[tuple[str, int]] = loop.create_future()

        def finish(error: str, left_out: int) -> None:
            if not result.done():
                result.set_result((error, left_out))

        def work() -> None:
            error, left_out = self._attempt(state)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, error, left_out)

        threading.Thread(target=work, name="state", daemon=True).start()
        return result

    def _attempt(self, state: Kept) -> tuple[str, int]:
        try:
            return "", self._write(state)
        except KeptError as error:
            return str(error), 0
        except Exception as error:  # noqa: BLE001 - whatever it is, the next write may succeed
            what = f"{type(error).__name__}: {error}"
            return f"error in the aggregator itself, please report it: {what}", 0

    async def _run(self) -> None:
        while self._next is not None:
            state, self._next = self._next, None
            waiting, self._waiting = self._waiting, []
            error, left_out = await self._in_thread(state)
            self._done(error, left_out)
            for future in waiting:
                if not future.done():
                    future.set_result(error)
