"""Limits of the pods, gangs and namespaces of drains, at a time and in an hour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_limits import drain_usage, drain_use, within_limits
from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.drain import DrainLimits
from nodeguard.model.pod import NodePod, PodGroupKey, PodKey
from tests.fleet.act.test_drain_limits import WIDE, age_at, candidate, drain, scene

NOW = 1_800_000_000.0
FLEET = scene(32)
ENOUGH = 100_000
UNLIMITED = replace(
    WIDE,
    pods=ENOUGH,
    pods_hourly=ENOUGH,
    gangs=ENOUGH,
    gangs_hourly=ENOUGH,
    namespaces=ENOUGH,
    namespaces_hourly=ENOUGH,
)


def pods(number: int, count: int, namespace: str = "team-a", gang: str = "") -> list[NodePod]:
    """Return the pods of a node, which are all of one gang if it has a name."""
    group = PodGroupKey(namespace, gang) if gang else None
    return [
        NodePod(PodKey(namespace, f"pod-{number}-{index}", f"{namespace}-{number}-{index}"), "1", group=group)
        for index in range(count)
    ]


def groups(pods: Iterable[NodePod]) -> tuple[PodGroupKey, ...]:
    return tuple(sorted({pod.group for pod in pods if pod.group is not None}))


def stored(number: int, work: list[NodePod], began: float = NOW, **more: Any) -> NodeAction:
    """Return a drain that runs."""
    action = drain_action(candidate(number), work, began, groups(work))
    return replace(action, state=ActionState.RUNNING, begun_at=int(began), **more)


def limited(
    limits: DrainLimits, sets: dict[int, list[NodePod]], *actions: NodeAction, now: float = NOW
) -> dict[int, DrainCandidate]:
    """Return the candidates of some nodes with their pods, by number of the node."""
    state = FLEET.planner.state
    found = within_limits(
        [candidate(number, float(number)) for number in sets],
        drain_usage(actions, age_at(now)),
        limits,
        state.placements,
        state.budgets.size,
        lambda item: drain_use(
            item.uid, [pod.key for pod in sets[_number(item)]], groups(sets[_number(item)])
        ),
    )
    return {_number(item): item for item in found}


def _number(item: DrainCandidate) -> int:
    return int(item.uid.removeprefix("uid-"))


SETS = {
    "pods": {0: pods(0, 4), 1: pods(1, 3), 2: pods(2, 2)},
    "gangs": {
        0: [*pods(0, 1, gang="a"), *pods(10, 1, gang="b")],
        1: [*pods(1, 1, gang="c"), *pods(11, 1, gang="d")],
        2: pods(2, 5, gang="c"),
    },
    "namespaces": {
        0: [*pods(0, 1, "team-a"), *pods(10, 1, "team-b")],
        1: [*pods(1, 1, "team-b"), *pods(11, 1, "team-c"), *pods(12, 1, "team-d")],
        2: pods(2, 5, "team-c"),
    },
}
REASONS = {
    "pods": ("drains of 4 of 6 pods run, and this one adds 3 (drain.limits.pods)", 6),
    "gangs": ("drains of 2 of 3 gangs run, and this one adds 2 (drain.limits.gangs)", 3),
    "namespaces": ("drains of 2 of 3 namespaces run, and this one adds 2 (drain.limits.namespaces)", 3),
}


@pytest.mark.parametrize("part", SETS)
def test_a_drain_beyond_the_limit_waits_and_a_smaller_one_begins(part: str) -> None:
    reason, limit = REASONS[part]
    found = limited(replace(UNLIMITED, **{part: limit}), SETS[part])
    assert [found[number].blocker for number in range(3)] == ["", reason, ""]
    assert not any(item.limited_for for item in found.values())


@pytest.mark.parametrize("part", SETS)
def test_the_limit_of_an_hour_names_the_time_when_it_allows_the_drain(part: str) -> None:
    reason, limit = REASONS[part]
    hourly = replace(UNLIMITED, **{f"{part}_hourly": limit})
    ended = stored(0, SETS[part][0], NOW - 600.0, changed_at=int(NOW), carried_out=1)
    ended = replace(ended, state=ActionState.SUCCEEDED)
    # An older one, which leaves the hour too early to matter.
    older = replace(stored(9, SETS[part][0][:1], NOW - 3000.0), state=ActionState.FAILED)
    sets = {number: SETS[part][number] for number in (1, 2)}
    found = limited(hourly, sets, ended, older)
    expected = reason.replace("run", "began within an hour").replace(")", "PerHour)")
    assert (found[1].blocker, found[1].limited_for) == (expected, 3000.0)
    assert found[2].blocker == ""
    assert limited(hourly, {1: sets[1]}, ended, older, now=NOW + 2999.0)[1].limited_for == 1.0
    assert limited(hourly, {1: sets[1]}, ended, older, now=NOW + 3000.0)[1].blocker == ""


@pytest.mark.parametrize(
    ("field", "suffix"), [("{}", ""), ("{}_hourly", "PerHour")], ids=["at a time", "in an hour"]
)
@pytest.mark.parametrize("part", SETS)
def test_a_set_that_is_larger_than_the_limit_never_begins(part: str, field: str, suffix: str) -> None:
    found = limited(replace(UNLIMITED, **{field.format(part): 1}), SETS[part])
    count = 4 if part == "pods" else 2
    assert found[0].blocker == (
        f"its {count} {part} are more than the limit of 1 (drain.limits.{part}{suffix})"
    )
    assert found[0].limited_for == 0.0


def test_a_drain_by_hand_counts_while_it_runs_and_not_in_the_hour() -> None:
    limits = replace(UNLIMITED, pods=6, pods_hourly=6)
    manual = stored(0, SETS["pods"][0], requested_by="alice")
    assert "(drain.limits.pods)" in limited(limits, {1: SETS["pods"][1]}, manual)[1].blocker
    ended = replace(manual, state=ActionState.SUCCEEDED)
    assert limited(limits, {1: SETS["pods"][1]}, ended)[1].blocker == ""


def test_work_that_leaves_already_is_not_added_again() -> None:
    """A drain by hand may exceed the limits; a second node of its gang adds nothing to it."""
    work = SETS["gangs"][0]
    running = stored(0, work, requested_by="alice")
    limits = replace(UNLIMITED, pods=1, gangs=1, namespaces=1)
    assert limited(limits, {1: work}, running)[1].blocker == ""
    assert limited(limits, {1: [*work, *pods(1, 1)]}, running)[1].blocker != ""


def test_the_limit_of_drains_names_the_time_when_it_allows_the_next() -> None:
    actions = [
        replace(stored(number, [], NOW - ago), state=ActionState.SUCCEEDED)
        for number, ago in enumerate((100.0, 2000.0, 3000.0))
    ]
    found = limited(replace(UNLIMITED, hourly=2), {9: []}, *actions)[9]
    assert found.blocker == "3 of 2 drains began within an hour (drain.limits.newPerHour)"
    assert found.limited_for == 1600.0


@pytest.mark.parametrize("part", SETS)
def test_the_defaults_allow_each_set_of_a_node_with_eight_gpus(part: str) -> None:
    limits = DrainLimits()
    work = [pods(number, 1, f"team-{number}", f"gang-{number}")[0] for number in range(8)]
    assert limited(limits, {0: work})[0].blocker == ""
    assert limited(limits, {0: pods(0, 500, gang="large")})[0].blocker == ""
    assert limits.at_once[part] * 2 == limits.in_an_hour[part]


STEPS = st.lists(
    st.tuples(
        st.dictionaries(
            st.integers(0, 31),
            st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 3)),
            max_size=12,
        ),
        st.sampled_from([0.0, 60.0, 1800.0, 3599.0]),
        st.sets(st.integers(0, 31), max_size=6),
        st.sampled_from([ActionState.SUCCEEDED, ActionState.FAILED]),
    ),
    max_size=12,
)
PARTS = ("pods", "pods_hourly", "gangs", "gangs_hourly", "namespaces", "namespaces_hourly")
LIMITS = st.builds(
    lambda *counts: replace(UNLIMITED, **dict(zip(PARTS, counts, strict=True))),
    *[st.integers(1, 12)] * 2,
    *[st.integers(1, 4)] * 4,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, LIMITS)
def test_no_sequence_exceeds_a_limit_of_work(steps: list[Any], limits: DrainLimits) -> None:
    """Drains begin as they are admitted, and end at any time. A drain that waits for an hour begins then."""
    running, ended, now = dict[int, NodeAction](), list[NodeAction](), NOW
    for wanted, seconds, over, outcome in steps:
        now += seconds
        ended += [replace(running.pop(number), state=outcome) for number in over & running.keys()]
        sets = {
            number: pods(number, count, f"team-{team}", f"gang-{gang}" if gang else "")
            for number, (count, team, gang) in wanted.items()
        }
        actions = (*running.values(), *ended)
        found = limited(limits, sets, *actions, now=now)
        finished = [replace(action, state=outcome) for action in actions]
        for number in found:
            [item] = limited(limits, {number: sets[number]}, *finished, now=now).values()
            if item.limited_for:
                before, after = (
                    limited(limits, {number: sets[number]}, *finished, now=now + item.limited_for - early)
                    for early in (1.0, 0.0)
                )
                assert before[number].blocker
                assert after[number].blocker != item.blocker
        for number, item in found.items():
            if not item.blocker:
                running[number] = replace(stored(number, sets[number], now), attempt=len(ended) + 1)
        present = list(running.values())
        recent = [action for action in (*present, *ended) if now - action.begun_at < 3600.0]
        for actions_of_limit, most in ((present, limits.at_once), (recent, limits.in_an_hour)):
            keys = [key for action in actions_of_limit for key in action.pods]
            assert len({key.uid for key in keys}) <= most["pods"]
            assert len({key.namespace for key in keys}) <= most["namespaces"]
            gangs = {group for action in actions_of_limit for group in action.pod_groups}
            assert len(gangs) <= most["gangs"]


def test_a_stored_drain_of_a_deleted_node_counts() -> None:
    action = replace(drain(FLEET, 99), pods=tuple(pod.key for pod in pods(99, 4)))
    limits = replace(UNLIMITED, pods=6)
    assert "(drain.limits.pods)" in limited(limits, {1: pods(1, 3)}, action, now=FLEET.wall)[1].blocker
