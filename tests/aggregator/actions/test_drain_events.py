"""The Events of drains on their Node, in virtual time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_events import drain_events
from nodeguard.model.action import ActionState
from nodeguard.model.eviction import DrainEvent, Eviction, EvictionState
from nodeguard.model.pod import NodePod, PodGroupKey
from tests.aggregator.actions.drain_replicas import LIMIT, NODE, PodCluster
from tests.aggregator.actions.drain_scene import Scene

QUARANTINE = "quarantine of GPU 0000:1b:00"
PODS = "4 pods (team-a/gang-0, team-a/gang-1, team-a/gang-2, team-a/gang-3)"


def event(reason: str, message: str, *, is_warning: bool = False) -> DrainEvent:
    return DrainEvent(NODE, NODE, f"NodeguardDrain{reason}", message, is_warning)


STARTED = event("Started", f"evicts {PODS}: {QUARANTINE}, gpu-lost")


@pytest.mark.parametrize("leaders", [1, 2])
def test_a_drain_has_one_event_for_its_begin_and_one_for_its_end(leaders: int) -> None:
    scene = Scene()
    scene.play(5.0)
    if leaders > 1:
        scene.lead()
    scene.play(60.0)
    ended = event("Succeeded", f"4 pods evicted from {NODE}: {QUARANTINE}")
    assert scene.events == [STARTED, ended]


def test_the_event_of_the_begin_names_the_gang_and_the_operator() -> None:
    scene = Scene()
    scene.whole = {PodGroupKey("team-a", "gang")}
    for uid, (_, pod) in list(scene.pods.items()):
        if pod.labels:
            scene.change(uid, group=PodGroupKey("team-a", "gang"))
    scene.play(5.0)
    [action] = scene.stored()
    [begin] = scene.events
    gang = ", with all pods of PodGroup team-a/gang"
    assert begin.message == f"evicts {PODS}{gang}: {QUARANTINE}, gpu-lost"
    manual = replace(action, requested_by="ann")
    [begin] = drain_events({action.key: replace(manual, begun_at=0)}, [manual], lambda _: ())
    assert begin.message == f"evicts {PODS}{gang}: {QUARANTINE}; requested by ann"


def test_a_drain_that_leaves_pods_has_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    def refusing(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and pod.key.name == "gang-3":
            return Eviction(EvictionState.REFUSED, "not now")
        return PodCluster.evict(scene, pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", refusing)
    scene.play(LIMIT + 60.0)
    left = "3 of 4 pods gone after 2m; team-a/gang-3: not now: decide whether to delete the rest by hand"
    assert scene.events == [STARTED, event("Failed", f"{QUARANTINE}: it failed: {left}", is_warning=True)]


def test_a_drain_with_a_refused_first_eviction_has_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, refusals = Scene(), list[str]()

    def refusing_once(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and not refusals:
            refusals.append(pod.key.name)
            return Eviction(EvictionState.REFUSED, "not now")
        return PodCluster.evict(scene, pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", refusing_once)
    scene.play(60.0)
    withdrawn = event("Withdrawn", "no pod was evicted: pod team-a/gang-0: not now")
    assert scene.drain.state == ActionState.SUCCEEDED
    assert [found.reason for found in scene.events] == [
        STARTED.reason, withdrawn.reason, STARTED.reason, "NodeguardDrainSucceeded",
    ]  # fmt: skip
    assert scene.events[1] == withdrawn
