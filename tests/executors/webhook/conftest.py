from __future__ import annotations

import pytest

from nodeguard.delivery import queue
from nodeguard.executors.webhook import executor as executor_module


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_TICK", 0.01)
    for name in ("FIRST_RETRY", "LONGEST_RETRY"):
        monkeypatch.setattr(queue, name, 0.01)
