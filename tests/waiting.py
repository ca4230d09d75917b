"""Waiting in tests: for an event, and with one patience that also suits a machine with much other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

# Seconds after which an event will not come any more. No test that passes waits for so long.
PATIENCE = 120.0

# Seconds that may pass until something has happened "at once". What it is told apart from takes PATIENCE or longer.
PROMPTLY = 60.0

Answer = TypeVar("Answer")


def until(condition: Callable[[], Answer], message: Callable[[], str] = str, every: float = 0.005) -> Answer:
    """Wait until a condition holds, and return its value.

    message: says at the end of the patience what has happened instead. every: seconds between two looks.
    """
    end = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < end, f"nothing has come in {PATIENCE:g} s. {message()}"
        time.sleep(every)
    return answer


async def until_async(condition: Callable[[], Answer], every: float = 0.005) -> Answer:
    """Wait until a condition holds while the event loop runs, and return its value."""
    end = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < end, f"nothing has come in {PATIENCE:g} s"
        await asyncio.sleep(every)
    return answer
