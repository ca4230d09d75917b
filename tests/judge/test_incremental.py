"""A verdict that uses the results of earlier evaluations is equal to one of a full evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.judge.judge import judge
from nodeguard.model.check import AllOf, AnyOf, Compare, Condition, EventOccurred, Increase, Sustained
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.target import NODE, gpu_target
from tests.judge.judged_node import BOOTED, JudgedNode, check, logged, observe, unread

GPUS = (gpu_target("1b:00"), gpu_target("3b:00"))
TARGETS = (NODE, *GPUS)
LOW = Compare("a.level", "below", 5)
CONDITIONS: tuple[Condition, ...] = (
    LOW,
    Sustained(LOW, 30.0),
    Increase("a.errors", 2, 60.0),
    EventOccurred("a.happened", over=60.0, times=2),
    EventOccurred("b.happened"),
    EventOccurred("b.happened", over=3600.0, until="a.happened"),
    AllOf((LOW, EventOccurred("b.happened"))),
    AnyOf((Sustained(LOW, 10.0), Increase("a.errors", 3, 10.0))),
)
CHECKS = [
    check(
        condition,
        f"check-{index}",
        targets=(NODE, "gpu"),
        message="{target} {a.level} {count}",
        cleared_by=("reset", "recovery-none"),
    )
    for index, condition in enumerate(CONDITIONS)
]

events = st.sampled_from(("a.happened", "b.happened", "b.happened", "gpu.reset", "gpu.recovery_none"))
targets = st.sampled_from(TARGETS)
observations = st.one_of(
    st.builds(lambda target, level: observe(target, a__level=level), targets, st.sampled_from((3, 7))),
    st.builds(
        lambda target, level, errors: observe(target, a__level=level, a__errors=errors),
        targets,
        st.sampled_from((3, 7)),
        st.integers(0, 5),
    ),
    st.builds(lambda target: unread(target, "a.level"), targets),
)
lines = st.lists(st.tuples(targets, events), max_size=2)
gaps = st.sampled_from((0.0, 1.0, 9.0, 10.0, 29.0, 30.0, 31.0, 59.0, 60.0, 61.0, 3600.0, 86_400.0))
steps = st.tuples(gaps, st.sampled_from((0.0, 0.0, 0.01, 7.0)), st.lists(observations, max_size=3), lines)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(steps, min_size=2, max_size=12), st.booleans())
def test_an_incremental_verdict_is_equal_to_a_full_one(
    rounds: list[tuple[float, float, list[Observation], list[tuple[str, str]]]], one_shot: bool
) -> None:
    incremental, full = (JudgedNode(*CHECKS, one_shot=one_shot) for _ in range(2))
    now = Instant(BOOTED, 0.0, "boot")
    for gap, clock_step, read, logged_events in rounds:
        now = replace(now, mono=now.mono + gap, wall=now.wall + gap + clock_step)
        readings = [Reading("memory", now.mono, tuple(read))] if read else []
        if logged_events:
            log = (logged(target, Event(signal, now.mono)) for target, signal in logged_events)
            readings.append(Reading("kmsg", now.mono, tuple(log)))
        verdicts = []
        full.state = replace(full.state, results={})
        for node in (incremental, full):
            node.state, verdict = judge(node.rules, node.state, readings, now, node.settings)
            verdicts.append(verdict)
        assert verdicts[0] == verdicts[1]
        assert incremental.state.targets == full.state.targets
