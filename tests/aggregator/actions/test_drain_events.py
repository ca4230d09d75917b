"""The Events of drains on their Node, in virtual time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_events import drain_events
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.eviction import DrainEvent, Eviction, EvictionState
from nodeguard.model.pod import NodePod, PodGroupKey
from tests.aggregator.actions.drain_replicas import LIMIT, NODE, PodCluster
from tests.aggregator.actions.drain_scene import Scene

QUARANTINE = "quarantine of GPU 0000:1b:00"
PODS = "4 pods (team-a/gang-0, team-a/gang-1, team-a/gang-2, team-a/gang-3)"


def event(drain: NodeAction, reason: str, message: str, *, is_warning: bool = False) -> DrainEvent:
    part, at = ("started", drain.begun_at) if reason == "Started" else ("ended", drain.changed_at)
    return DrainEvent(NODE, NODE, f"{drain.key}.{part}", at, f"NodeguardDrain{reason}", message, is_warning)


def started(drain: NodeAction) -> DrainEvent:
    return event(drain, "Started", f"evicts {PODS}: {QUARANTINE}, gpu-lost")


def succeeded(drain: NodeAction) -> DrainEvent:
    return event(drain, "Succeeded", f"4 pods evicted from {NODE}: {QUARANTINE}")


@pytest.mark.parametrize("leaders", [1, 2])
def test_a_drain_has_one_event_for_its_begin_and_one_for_its_end(leaders: int) -> None:
    scene = Scene()
    scene.play(5.0)
    if leaders > 1:
        scene.lead()
    scene.play(60.0)
    assert scene.events == [started(scene.drain), succeeded(scene.drain)]


@pytest.mark.parametrize("seconds", [1.0, 300.0, 700.0])
@pytest.mark.parametrize("is_ended", [False, True])
def test_a_leader_sends_the_events_that_its_predecessor_may_not_have_sent(
    is_ended: bool, seconds: float
) -> None:
    scene = Scene()
    scene.model.grace = 60.0 if is_ended else 2_000.0
    scene.finish_within = 10_000.0
    scene.play(70.0 if is_ended else 5.0)
    sent = scene.events
    assert len(sent) == 1 + is_ended
    # The predecessor was killed before it sent them, and the next one leads some time later.
    scene.objects_of_events.clear()
    scene.now += seconds
    scene.sync()
    scene.lead()
    scene.play(5.0)
    assert scene.events == (sent if seconds < 600.0 else [])
    assert scene.drain.state == (ActionState.SUCCEEDED if is_ended else ActionState.RUNNING)


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
    [begin] = drain_events({action.key: replace(manual, begun_at=0)}, [manual], lambda _: (), scene.now)
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
    failed = event(scene.drain, "Failed", f"{QUARANTINE}: it failed: {left}", is_warning=True)
    assert scene.events == [started(scene.drain), failed]


def test_a_drain_with_a_refused_first_eviction_has_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, refusals = Scene(), list[str]()

    def refusing_once(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if not is_dry_run and not refusals:
            refusals.append(pod.key.name)
            return Eviction(EvictionState.REFUSED, "not now")
        return PodCluster.evict(scene, pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", refusing_once)
    scene.play(60.0)
    first = min(scene.stored(), key=lambda action: action.attempt)
    assert (first.state, first.begun_at) == (ActionState.SUPERSEDED, 0)
    withdrawn = event(first, "Withdrawn", "no pod was evicted: pod team-a/gang-0: not now")
    assert scene.drain.state == ActionState.SUCCEEDED
    assert scene.events[1:] == [withdrawn, started(scene.drain), succeeded(scene.drain)]
    assert scene.events[0].key == f"{first.key}.started"
    # The leader was killed before it sent them: its begin is not recorded any more.
    scene.objects_of_events.clear()
    scene.lead()
    scene.play(5.0)
    assert scene.events == [withdrawn, started(scene.drain), succeeded(scene.drain)]
