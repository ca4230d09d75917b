from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nodeguard.model.observation import Observation
from nodeguard.pipeline.one_shot import evaluate_live
from nodeguard.sources.machine import Machine
from tests.agent.scene import RecordingPipeline, Scripted
from tests.sources.fake_machine import FakeMachine

STARTED = 1000.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine on which only sleeping takes time."""
    fake = FakeMachine()
    monkeypatch.setattr(time, "sleep", fake.later)
    return fake


def rounds(machine: FakeMachine, lasting: float, **intervals: float) -> list[tuple[float, tuple[str, ...]]]:
    """Return second and sources of each round of an evaluation."""
    judgement = RecordingPipeline()
    sources = [Scripted(name, interval=interval) for name, interval in intervals.items()]
    verdict = evaluate_live(machine, sources, judgement, lasting, 5.0)
    assert verdict.evaluated == len(judgement.rounds), "the verdict is the last round's"
    return [(at - STARTED, names) for at, names in judgement.rounds]


def test_without_a_duration_each_source_is_read_once(machine: FakeMachine) -> None:
    assert rounds(machine, 0.0, a=10, b=30) == [(0, ("a", "b"))]


def test_each_source_is_read_at_its_interval_and_all_of_them_at_the_end(machine: FakeMachine) -> None:
    expected = [(0, ("a", "b")), (10, ("a",)), (20, ("a",)), (30, ("a", "b")), (35, ("a", "b"))]
    assert rounds(machine, 35.0, a=10, b=30) == expected


def test_a_duration_below_every_interval_reads_twice(machine: FakeMachine) -> None:
    assert rounds(machine, 2.5, a=10, b=60) == [(0, ("a", "b")), (2.5, ("a", "b"))]


def test_the_end_may_fall_on_an_interval(machine: FakeMachine) -> None:
    assert rounds(machine, 20.0, a=10) == [(0, ("a",)), (10, ("a",)), (20, ("a",))]


def test_a_round_longer_than_its_interval_is_followed_by_the_next(machine: FakeMachine) -> None:
    def taking_25_seconds(_: Machine) -> Iterator[Observation]:
        machine.later(25.0)
        return iter([])

    judgement = RecordingPipeline()
    evaluate_live(machine, [Scripted("slow", taking_25_seconds, interval=10)], judgement, 60.0, 60.0)
    assert [at - STARTED for at, _ in judgement.rounds] == [25, 60, 85, 110]
