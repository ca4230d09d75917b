from __future__ import annotations

import pytest

from nodeguard.agent import service
from nodeguard.agent.reporting import endpoint_pool
from nodeguard.agent.reporting.http1 import DEADLINE
from tests.fuse import fuse_mount
from tests.nvml_double import nvml_builds, nvml_double
from tests.waiting import PATIENCE

__all__ = ["fuse_mount", "nvml_builds", "nvml_double"]


@pytest.fixture
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the last message enough time on a slow machine."""
    monkeypatch.setattr(service, "_LAST", PATIENCE)
    monkeypatch.setattr(endpoint_pool, "LAST", PATIENCE)
    monkeypatch.setattr(endpoint_pool, "_UNDER_WAY", DEADLINE / 5)
