"""Tasks of a backend that run until they end or the backend closes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


def raise_failure(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Raise the exception of the first task that failed."""
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


class BackgroundTasks:
    """Keeps tasks until they end. A failed one is kept, so that its exception is not lost."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a task."""
        self._tasks = [
            task for task in self._tasks if not task.done() or task.cancelled() or task.exception()
        ]
        self._tasks.append(asyncio.create_task(work))

    def raise_failure(self) -> None:
        """Raise the exception of the first task that failed."""
        raise_failure(self._tasks)

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
