"""Leaders that are killed at drawn instants of drains: each pod is evicted once, none outside of a recorded set, and
each drain is whole in the end. `python bench/drain_kills.py` kills 200.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.controlplane.cluster import NewCluster
from tests.e2e.drain_kills import kill_leaders

pytestmark = pytest.mark.slow

KILLS = 8


@pytest.mark.timeout(1200)
def test_leaders_killed_at_any_time_evict_each_pod_once(new_cluster: NewCluster, tmp_path: Path) -> None:
    assert not kill_leaders(new_cluster, tmp_path, KILLS, Random(KILLS)).problems()
