"""Background tasks, at most one of each key at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)


class KeyedTasks(Generic[Key]):
    """The tasks that run. on_ended: is called after the end of each, also with an error, which is logged."""

    def __init__(self, on_ended: Callable[[], object]) -> None:
        self._on_ended = on_ended
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def is_running(self, key: Key) -> bool:
        """Return whether the task of a key has not ended."""
        return key in self._tasks

    def start(self, key: Key, work: Coroutine[object, object, None], limit: asyncio.Semaphore) -> None:
        """Start the task of a key, of which none runs. limit: for tasks at the same time; the others wait."""

        async def within_limit() -> None:
            async with limit:
                await work

        task = self._tasks[key] = asyncio.create_task(within_limit())
        task.add_done_callback(partial(self._ended, key, work))

    async def wait(self) -> None:
        """Wait for the end of all tasks. Raises the first error of one."""
        await asyncio.gather(*self._tasks.values())

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks.values():
            task.cancel()

    def _ended(self, key: Key, work: Coroutine[object, object, None], task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        # A task that is cancelled while it waits never begins it, of which Python would warn.
        work.close()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("internal error in a drain, please report it", exc_info=error)
        self._on_ended()
