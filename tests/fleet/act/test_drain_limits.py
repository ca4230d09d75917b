"""Limits of drains: which candidates begin, in which order, and that no sequence exceeds a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_limits import drain_usage, earlier_drain_reason, within_limits
from nodeguard.fleet.act.drain_progress import DrainAges, drain_action
from nodeguard.fleet.drains import limited_drains
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.drain import DrainLimits
from nodeguard.model.instant import Instant
from nodeguard.model.pod import NodePod, PodKey
from nodeguard.model.policy import TopologyLabels
from tests.fleet.act.drained_fleet import DRAINS
from tests.fleet.scene import Fleet

RACKS = (TopologyLabels("rack", ("rack",)), TopologyLabels("zone", ("zone",)))
WIDE = DrainLimits(nodes=1.0, hourly=1000, domain=1000)


def scene(size: int = 64, **limits: Any) -> Fleet:
    """Return a fleet in racks of eight nodes and in one zone."""
    fleet = Fleet(
        0, replace(DRAINS, drain=replace(DRAINS.drain, limits=replace(WIDE, **limits)), topologies=RACKS)
    )
    for number in range(size):
        fleet.add(number, labels={"rack": f"r{number // 8}", "zone": "z"})
    return fleet


def candidate(number: int, since: float = 100.0, resource: str = "node", blocker: str = "") -> DrainCandidate:
    return DrainCandidate(f"uid-{number}", f"node-{number}", resource, since, ("gpu-lost",), (), blocker)


def age_at(now: float) -> Callable[[NodeAction], float]:
    return lambda action: now - (action.begun_at or action.created_at)


def limited(
    fleet: Fleet, *candidates: DrainCandidate, actions: tuple[NodeAction, ...] = ()
) -> dict[str, str]:
    """Return the blockers of the candidates by node, in their order."""
    found = limited_drains(fleet.planner, actions, candidates, age_at(fleet.wall))
    return {item.node: item.blocker for item in found}


def drain(fleet: Fleet, number: int, state: ActionState = ActionState.RUNNING, **more: Any) -> NodeAction:
    return replace(drain_action(candidate(number), (), fleet.wall), state=state, **more)


def test_the_longest_quarantine_is_first() -> None:
    order = candidate(9, 50.0), candidate(1, 60.0), candidate(2, 60.0)
    assert list(limited(scene(), *reversed(order))) == ["node-9", "node-1", "node-2"]


@pytest.mark.parametrize(
    ("size", "share", "nodes"), [(64, 0.01, 1), (64, 0.05, 3), (100, 0.29, 29), (3, 0.0, 1)]
)
def test_the_nodes_are_rounded_down_and_at_least_one(size: int, share: float, nodes: int) -> None:
    fleet = scene(size, nodes=share)
    found = limited(fleet, *map(candidate, range(size)))
    assert sum(not blocker for blocker in found.values()) == nodes
    assert f"{nodes} of {nodes} nodes are being drained (drain.limits.nodes)" in found.values()


def test_a_candidate_that_waits_for_something_else_uses_no_limit() -> None:
    found = limited(scene(nodes=0.0), candidate(0, 1.0, blocker="the node is on hold"), candidate(1, 2.0))
    assert found == {"node-0": "the node is on hold", "node-1": ""}


def test_a_node_has_one_drain_at_a_time() -> None:
    two = candidate(0, 1.0, "gpu/0000:3b:00"), candidate(0, 1.0, "gpu/0000:3c:00")
    fleet = scene()
    found = limited_drains(fleet.planner, (), two, age_at(fleet.wall))
    assert [item.blocker for item in found] == ["", "another drain of the node is running"]


def test_a_domain_counts_unless_it_has_more_than_a_quarter_of_the_fleet() -> None:
    found = limited(scene(domain=1), candidate(0, 1.0), candidate(1, 2.0), candidate(8, 3.0))
    assert found == {
        "node-0": "",
        "node-1": "another node of rack/r0 is being drained (drain.limits.perDomain)",
        "node-8": "",
    }
    assert set(limited(scene(24, domain=1), candidate(0), candidate(1)).values()) == {""}


def test_a_stored_drain_keeps_its_candidate_free_of_limits() -> None:
    fleet = scene(nodes=0.0, hourly=1)
    stored = drain(fleet, 0)
    assert limited(fleet, candidate(0), actions=(stored,)) == {"node-0": ""}
    withdrawn = replace(stored, state=ActionState.SUPERSEDED, begun_at=int(fleet.wall))
    assert "newPerHour" in limited(fleet, candidate(0), actions=(withdrawn,))["node-0"]


@pytest.mark.parametrize(
    ("state", "begun", "running", "recent"),
    [
        (ActionState.RESERVED, 0, 1, 1),
        (ActionState.RUNNING, 0, 1, 1),
        (ActionState.RUNNING, 1, 1, 1),
        (ActionState.SUCCEEDED, 1, 0, 1),
        (ActionState.FAILED, 1, 0, 1),
        (ActionState.FAILED, 0, 0, 0),
        (ActionState.SUPERSEDED, 1, 0, 1),
        (ActionState.CANCELLED, 0, 0, 0),
    ],
)
def test_a_drain_counts_from_its_record_and_one_that_evicted_nothing_not_after_its_end(
    state: ActionState, begun: int, running: int, recent: int
) -> None:
    fleet = scene()
    action = drain(fleet, 0, state, begun_at=begun and int(fleet.wall))
    usage = drain_usage((action, replace(action, kind=ActionKind.CLEAR)), age_at(fleet.wall))
    assert (len(usage.running), len(usage.recent)) == (running, recent)


def test_the_drains_of_the_latest_hour_count_from_their_begin() -> None:
    fleet = scene(hourly=1)
    action = drain(fleet, 0, ActionState.FAILED, begun_at=int(fleet.wall))
    for seconds, is_blocked in ((0.0, True), (3598.0, True), (2.0, False)):
        fleet.after(seconds)
        assert bool(limited(fleet, candidate(1), actions=(action,))["node-1"]) == is_blocked


def test_a_drain_of_a_node_that_is_gone_counts_and_a_candidate_of_one_waits() -> None:
    fleet = scene(nodes=0.0)
    assert limited(fleet, candidate(99)) == {"node-99": "the node does not belong to the fleet"}
    assert "drain.limits.nodes" in limited(fleet, candidate(1), actions=(drain(fleet, 99),))["node-1"]


STEPS = st.lists(
    st.tuples(
        st.sets(st.integers(0, 31), max_size=12),
        st.sampled_from([0.0, 60.0, 1800.0]),
        st.sets(st.integers(0, 31), max_size=6),
        st.sampled_from([ActionState.SUCCEEDED, ActionState.FAILED, ActionState.SUPERSEDED]),
        st.sampled_from([0.0, 0.0, 1200.0, 7200.0, 86_400.0]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.0, 0.1, 0.2, 1.0]))
def test_no_sequence_exceeds_a_limit(steps: list[Any], hourly: int, domain: int, share: float) -> None:
    """Drains begin as they are admitted and end at any time; candidates come and go; other leaders with a clock
    that is ahead record some begins.
    """
    fleet = scene(32, nodes=share, hourly=hourly, domain=domain)
    state = fleet.planner.state
    limits, running, began = fleet.planner.policy.drain.limits, dict[int, NodeAction](), list[float]()
    ended: list[NodeAction] = []
    wall, ages = fleet.wall, DrainAges()
    for present, seconds, over, outcome, ahead in steps:
        wall += seconds
        finished = over & running.keys()
        ended += [replace(running.pop(number), state=outcome, changed_at=int(wall)) for number in finished]
        drains, now = (*running.values(), *ended), Instant(wall, wall, "")
        ages.follow(drains, now)
        usage = drain_usage(drains, partial(ages.age, now=now))
        wanted = [candidate(number, float(number % 7)) for number in present]
        for item in within_limits(wanted, usage, limits, state.placements, state.budgets.size):
            if not item.blocker:
                number = int(item.uid.removeprefix("uid-"))
                assert number not in running
                action = replace(drain_action(item, (), wall), attempt=len(began) + 1)
                running[number] = replace(action, state=ActionState.RUNNING, begun_at=int(wall + ahead))
                began.append(wall)
        assert len(running) <= max(1, int(share * 32))
        assert sum(wall - at < 3600.0 for at in began) <= hourly
        assert max(Counter(number // 8 for number in running).values(), default=0) <= domain


def recorded(number: int, created: float, begun: int = 0, *namespaces: str) -> NodeAction:
    """Return the drain of a node, with a pod in each of some namespaces."""
    pods = (NodePod(PodKey(name, f"pod-{number}", f"uid-{name}-{number}"), "1") for name in namespaces)
    return replace(drain_action(candidate(number), pods, created), state=ActionState.RUNNING, begun_at=begun)


def test_a_set_waits_for_a_recorded_drain_that_may_share_its_budget() -> None:
    other = recorded(1, 100.0, 0, "team-a", "team-b")
    assert earlier_drain_reason((), {"team-b"}, None, (other,), ()) == (
        "the drain of node-1 is first: a PodDisruptionBudget of namespace team-b may select pods of both"
    )
    assert earlier_drain_reason((), {"team-b"}, None, (), ()) == ""
    assert earlier_drain_reason((), {"team-c"}, None, (other,), ()) == "", "no pod of it is in the namespace"
    assert earlier_drain_reason((), (), None, (other,), ()) == "", "no budget selects a pod of the set"


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 200]), st.booleans()), min_size=2, max_size=4
    ),
    st.randoms(),
)
def test_one_of_the_recorded_drains_with_one_budget_is_confirmed(
    drains: list[tuple[int, int, bool]], random: Any
) -> None:
    """Each drain asks in any order, and is confirmed or withdrawn before the next one asks."""
    actions = [
        recorded(number, float(created), begun, "team-a") for number, (created, begun, _) in enumerate(drains)
    ]
    confirmed = {
        action.key for action, (_, _, is_confirmed) in zip(actions, drains, strict=True) if is_confirmed
    }
    asking = [action for action in actions if action.key not in confirmed]
    assume(len(confirmed) <= 1)
    random.shuffle(asking)
    remaining = list(actions)
    for action in asking:
        others = [other for other in remaining if other is not action]
        if earlier_drain_reason((), {"team-a"}, action, others, confirmed):
            remaining.remove(action)
        else:
            confirmed.add(action.key)
    assert len(confirmed) == 1
    assert [action.key for action in remaining] == list(confirmed)


def test_the_drain_that_was_recorded_first_goes_first() -> None:
    first, second = recorded(1, 100.0, 0, "team-a"), recorded(0, 101.0, 0, "team-a")
    assert earlier_drain_reason((), {"team-a"}, first, (second,), ()) == ""
    assert "the drain of node-1 is first" in earlier_drain_reason((), {"team-a"}, second, (first,), ())
    for begun, confirmed in ((replace(second, begun_at=102), ()), (second, (second.key,))):
        assert "the drain of node-0 is first" in earlier_drain_reason(
            (), {"team-a"}, first, (begun,), confirmed
        )
        assert earlier_drain_reason((), {"team-a"}, begun, (first,), confirmed) == ""


def test_two_records_of_one_drain_do_not_wait_for_each_other() -> None:
    """As a leader that had not read the first one recorded the second, and each has begun."""
    first = recorded(1, 100.0, 101, "team-a")
    second = replace(first, attempt=2, begun_at=102)
    uids = {pod.uid for pod in first.pods}
    for own, other in ((first, second), (second, first)):
        assert earlier_drain_reason(uids, {"team-a"}, own, (other,), ()) == ""


def test_of_two_drains_with_pods_of_one_gang_one_waits() -> None:
    """Also without a disruption budget: both sets have the pods of the gang."""
    first, second = recorded(1, 100.0, 0, "team-a"), recorded(0, 101.0, 0, "team-a")
    for own in (None, second):
        assert earlier_drain_reason({"uid-team-a-1", "uid-other"}, (), own, (first,), ()) == (
            "the drain of node-1 is first: it evicts pod team-a/pod-1 too"
        )
    assert earlier_drain_reason({"uid-team-a-1"}, (), first, (second,), ()) == ""
    assert earlier_drain_reason({"uid-other"}, (), None, (first,), ()) == ""
