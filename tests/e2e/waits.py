"""How long a person waits for each step of a procedure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.waiting import until


class Waits:
    """The steps so far, with their seconds. message: what has happened instead, for the error on a time-out."""

    def __init__(self, message: Callable[[], str]) -> None:
        self._message = message
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a block."""
        begin = time.monotonic()
        yield
        self._steps.append((name, time.monotonic() - begin))

    def for_all(self, since: float, conditions: Mapping[str, Callable[[], object]]) -> None:
        """Wait until each condition was met once, and measure each. since: the monotonic time of the cause."""
        left = dict(conditions)

        def are_met() -> bool:
            for name in list(left):
                if left[name]():
                    self._steps.append((name, time.monotonic() - since))
                    del left[name]
            return not left

        until(are_met, lambda: f"not met: {', '.join(left)}\n{self._message()}", every=2.0)

    def table(self) -> str:
        """Return the steps as lines."""
        width = max(len(name) for name, _ in self._steps)
        return "\n".join(f"{name:<{width}}  {seconds:6.1f} s" for name, seconds in self._steps)
