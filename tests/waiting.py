"""Waiting for events in tests, with time-outs that also suit a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

# Seconds after which a missing event fails a test. No test that passes waits for it.
PATIENCE = 120.0

# A condition is evaluated for at most a tenth of the time, so that waiting takes no processor from the awaited work:
# this many times the seconds of its evaluation pass before the next one, or _LONGEST_PAUSE.
_REST, _LONGEST_PAUSE = 9.0, 0.5

# Seconds within which something happens "at once". A slow event takes PATIENCE or longer.
PROMPTLY = 60.0

Answer = TypeVar("Answer")


def until(
    condition: Callable[[], Answer],
    message: Callable[[], str] = str,
    every: float = 0.005,
    progress: Callable[[], object] = lambda: None,
) -> Answer:
    """Wait until a condition holds, and return its value.

    message: what has happened instead, for the error on a time-out. every: seconds between two calls, or more after a
    call that takes long. progress: the time starts again with each change of this, for work of which the amount and not
    the speed is known.
    """
    end, reached = time.monotonic() + PATIENCE, progress()
    while True:
        begin = time.monotonic()
        if answer := condition():
            return answer
        pause = pause_after(time.monotonic() - begin, every)
        if (now_reached := progress()) != reached:
            end, reached = time.monotonic() + PATIENCE, now_reached
        assert time.monotonic() < end, f"the condition is still false after {PATIENCE:g} s. {message()}"
        time.sleep(pause)


def pause_after(seconds: float, every: float) -> float:
    """Return the seconds until the next evaluation of a condition that took some seconds. every: the least."""
    return max(every, min(_LONGEST_PAUSE, _REST * seconds))


async def until_async(condition: Callable[[], Answer], every: float = 0.005) -> Answer:
    """Wait until a condition holds while the event loop runs, and return its value."""
    end = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < end, f"the condition is still false after {PATIENCE:g} s"
        await asyncio.sleep(every)
    return answer


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run work until the block ends. Raises the error with which it failed before."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
