"""An upgrade from an earlier version and back: no mark is set, released or charged twice, and no incident doubled.

bench/upgrade.py does the same for ten minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.e2e.earlier_objects import load
from tests.e2e.earlier_version import COMMIT, has_earlier_version
from tests.e2e.upgrade import REPEATED, upgrade_scene, upgraded_scene

pytestmark = pytest.mark.slow


@pytest.mark.skipif(
    not has_earlier_version(), reason=f"the history of this checkout has no commit {COMMIT[:8]}"
)
def test_both_versions_take_turns_without_any_mark_set_or_released_twice(
    controlplane: Cluster, tmp_path: Path
) -> None:
    with upgrade_scene(controlplane, tmp_path) as scene:
        scene.mark(soak="10s")
        scene.apply(scene.present)
        with scene.checked() as history:
            scene.begin_soak()
            scene.start(scene.present)
            scene.take_over(scene.present)
            scene.start(scene.earlier)
            scene.take_turns(6, pause=1.0)
        print(history.writes())
        # The rollback: first the objects, then the aggregators.
        scene.apply(scene.earlier)
        with scene.checked() as history:
            scene.take_turns(4, pause=1.0)
        print(history.writes())


def test_the_present_version_continues_from_what_an_earlier_one_wrote(controlplane: Cluster) -> None:
    with upgraded_scene(controlplane, load) as scene:
        with scene.checked() as history:
            scene.connect()
            scene.settle()
            scene.heal(*REPEATED)
        print(history.writes())
