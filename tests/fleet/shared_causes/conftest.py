from __future__ import annotations

import pytest

from nodeguard.fleet.diagnosis import vote_collector
from tests.fleet.shared_causes import scene


@pytest.fixture(autouse=True)
def diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge the rule that the scene names."""
    monkeypatch.setattr(vote_collector, "Diagnosis", scene.DIAGNOSIS)
