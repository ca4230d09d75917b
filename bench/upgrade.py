"""An upgrade from an earlier version and its rollback, with one replica of each for ten minutes.

`python bench/upgrade.py [--minutes 10]`. The earlier version is a commit of the history of this checkout. It
sets 40 marks of nodes and devices and those of two degraded domains, and suppresses a check, on a real API
server. Then one aggregator of each version runs, and the lease goes from one to the other every 20 seconds;
each fourth time the leader is terminated. At each turn a node fails, and another one heals. Half of the time
has the present definitions, rights and admission policies, half the earlier ones. Exits with 1 if a mark is
set, released or charged twice, or an incident is doubled.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.controlplane.cluster import cluster
from tests.e2e.earlier_version import COMMIT, has_earlier_version
from tests.e2e.mark_history import Snapshot
from tests.e2e.upgrade import UpgradeScene, upgrade_scene

# Seconds between two turns, without those of the turn.
PAUSE = 15.0


def main() -> int:
    """Print the figures. Returns the exit status."""
    parser = ArgumentParser(prog="python bench/upgrade.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of one replica of each version (10)")
    minutes = parser.parse_args().minutes
    if not has_earlier_version():
        print(
            f"this checkout has no commit {COMMIT[:8]}: fetch the whole history with `git fetch --unshallow`"
        )
        return 1
    with cluster() as made, temporary_directory() as directory, upgrade_scene(made, directory) as scene:
        scene.mark(soak="1m")
        row("marked by the earlier version", scene)
        upgrade(scene, minutes * 30.0)
        roll_back(scene, minutes * 30.0)
    print("no mark was set, released or charged twice, and no incident is doubled")
    return 0


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def upgrade(scene: UpgradeScene, seconds: float) -> None:
    """Start the present version beside the earlier one, with its manifests."""
    scene.apply(scene.present)
    with scene.checked() as history:
        scene.begin_soak()
        scene.start(scene.present)
        scene.take_over(scene.present)
        row("the present version leads", scene)
        scene.start(scene.earlier)
        turns = take_turns(scene, seconds)
    row(f"after {turns} turns with the present manifests", scene)
    print(f"  changes: {history.writes()}", flush=True)


def roll_back(scene: UpgradeScene, seconds: float) -> None:
    """Return to the earlier manifests, and then to the earlier version."""
    scene.apply(scene.earlier)
    with scene.checked() as history:
        turns = take_turns(scene, seconds)
    row(f"after {turns} turns with the earlier manifests", scene)
    print(f"  changes: {history.writes()}", flush=True)


def take_turns(scene: UpgradeScene, seconds: float) -> int:
    """Hand the lease over and back for a time. Returns how often."""
    began, turns = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        scene.take_turns(1, PAUSE)
        turns += 1
    return turns


def row(name: str, scene: UpgradeScene) -> None:
    """Print what the cluster has now."""
    now = Snapshot.of(scene.cluster)
    marks = sum(len(state.marks) for state in now.marks.values())
    charges = sum(len(state.charges) for state in now.marks.values())
    print(
        f"{name}: {len(now.marked())} nodes with {marks} marks and {charges} charges, "
        f"{now.open_incidents().total()} open incidents",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
