"""A gang with pods on three nodes, of which one or two have a fault."""

from __future__ import annotations

from collections.abc import Collection

from nodeguard.model.pod import PodGroupKey
from tests.aggregator.actions.drain_replicas import GANG, NODE, OTHER, candidate
from tests.aggregator.actions.drain_scene import Scene
from tests.aggregator.actions.random_drain_history import History

TRAIN = PodGroupKey("team-a", "train")
REMOTE = "uid-2"
RANKS = {f"rank-{number}" for number in range(4)}


def spread(world: Scene | History, labels: dict[str, str] = GANG) -> None:
    """Replace the pods by a gang, with two pods on the faulty node and one on each of two others. One of the two on
    the faulty node holds the faulty GPU. labels: none for pods without a disruption budget.
    """
    world.pods.clear()
    world.whole = {TRAIN}
    places = ((NODE, "GPU-0"), (NODE, "GPU-1"), (OTHER, "GPU-0"), (REMOTE, "GPU-5"))
    for number, (node, gpu) in enumerate(places):
        world.create(node, f"rank-{number}", gpu, labels, group=TRAIN)
    world.sync()


def gang_scene(*, minimum: int = 0, faults: Collection[str] = (NODE,)) -> Scene:
    """Return a leader and faults of some nodes."""
    scene = Scene(minimum=minimum)
    spread(scene)
    scene.candidates = {node: candidate(node, scene.now) for node in faults}
    scene.replica.catch_up()
    return scene
