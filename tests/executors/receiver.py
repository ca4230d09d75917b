"""A receiver of marks: the one of the documentation, in front of a scheduler that only knows drains."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.webhooks import WebhookReceiver

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "drive-a-scheduler.md"


def documented_receiver() -> dict[str, Any]:
    """Return the names that the code of the page defines."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


class MarkReceiver(WebhookReceiver):
    """Applies the requests to `drained`: the kinds of marks by node. lose: how many further requests it applies
    without a response. every: what happens to every other request: `late` has the status 503, and `twice` is
    applied without a response, so that it arrives again; empty for nothing.
    """

    every = ""

    def __init__(self) -> None:
        super().__init__()
        self.drained: dict[str, set[str]] = {}
        self.lose = 0
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Forget what was applied."""
        self._receive = documented_receiver()["receive"]

    def handle(self, body: dict[str, Any]) -> bool:
        with self._lock:
            self._receive(body, self._set_marks)
            if self.lose:
                self.lose -= 1
                return False
        return self.every != "twice" or self.requests % 2 == 0

    def answer(self) -> int:
        return 503 if self.every == "late" and self.requests % 2 == 1 else self.status

    def _set_marks(self, node: str, marks: list[dict[str, Any]]) -> None:
        self.drained[node] = {mark["kind"] for mark in marks}
        if not marks:
            del self.drained[node]


@pytest.fixture
def receiver() -> Iterator[MarkReceiver]:
    """A receiver that serves."""
    made = MarkReceiver()
    with made.serving():
        yield made
