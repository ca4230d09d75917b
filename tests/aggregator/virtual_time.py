"""An event loop in virtual time: it never sleeps, and its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    """A selector that waits by adding to its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0.0:  # callbacks are ready: no need to look for more
            return []
        events = super().select(0.0)
        if not events:
            assert timeout is not None, "nothing will happen any more"
            self.now += timeout
        return events


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _Selector) -> None:
        self._virtual = selector
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual.now


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on such a loop, and return its result."""
    loop = _Loop(_Selector())
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
