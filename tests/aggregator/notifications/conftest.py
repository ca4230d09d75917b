"""The receiver of marks, for tests of the mark mirror, and deliveries without pauses."""

from __future__ import annotations

import pytest

from nodeguard.aggregator.notifications import sender as sender_module
from nodeguard.delivery import queue as queue_module
from tests.executors.receiver import receiver

__all__ = ["receiver"]


@pytest.fixture
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_SAVE_INTERVAL", 0.01)
    for name in ("FIRST_RETRY", "LONGEST_RETRY"):
        monkeypatch.setattr(queue_module, name, 0.01)
