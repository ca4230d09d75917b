from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.bundle.recording import Recording
from nodeguard.model.observation import Observation
from nodeguard.pipeline.replay import due_times, replay_verdicts
from nodeguard.sources.machine import Machine
from tests.agent.scene import RecordingPipeline, Scripted
from tests.bundle.bundles import bundle

BOOTED = 864_000.0


def rounds(directory: Path, files: dict[str, Any], *sources: Scripted) -> list[tuple[float, tuple[str, ...]]]:
    judgement = RecordingPipeline()
    seconds = [at for at, _ in replay_verdicts(Recording.open(bundle(directory, files)), sources, judgement)]
    assert [at - BOOTED for at, _ in judgement.rounds] == seconds
    return [(at - BOOTED, names) for at, names in judgement.rounds]


def test_each_source_is_read_at_its_interval_until_after_the_last_frame(tmp_path: Path) -> None:
    files = {"a/x": "1", "b/x": "1", "frames/000015/a/x": "2"}
    expected = [(0, ("a", "b")), (10, ("a",)), (20, ("a",)), (30, ("a", "b")), (40, ("a",)), (45, ("a", "b"))]
    assert rounds(tmp_path, files, Scripted("a", interval=10), Scripted("b", interval=30)) == expected


def test_a_recording_without_frames_is_evaluated_once(tmp_path: Path) -> None:
    assert rounds(tmp_path, {"a/x": "1"}, Scripted("a", interval=10)) == [(0, ("a",))]


def test_the_last_frame_is_evaluated_with_any_interval(tmp_path: Path) -> None:
    files = {"a/x": "1", "frames/000070/a/x": "2"}
    seen = rounds(tmp_path, files, Scripted("a", interval=60))
    assert seen == [(0, ("a",)), (60, ("a",)), (100, ("a",))]


def test_a_source_that_was_not_recorded_does_not_exist(tmp_path: Path) -> None:
    assert rounds(tmp_path, {"a/x": "1"}, Scripted("a", interval=60), Scripted("b", interval=10)) == [
        (0, ("a",))
    ]


def test_the_last_verdict_is_that_of_the_recording(tmp_path: Path) -> None:
    recording = Recording.open(bundle(tmp_path, {"a/x": "1", "frames/000005/a/x": "2"}))
    *_, (at, verdict) = replay_verdicts(recording, [Scripted("a")], RecordingPipeline())
    assert (at, verdict.evaluated) == (35.0, 5)


def test_a_source_sees_the_machine_of_its_second(tmp_path: Path) -> None:
    seen: list[str] = []

    def read(machine: Machine) -> Iterator[Observation]:
        seen.append(machine.read("/a/x"))
        return iter([])

    files = {"a/x": "1", "frames/000010/a/x": "2", "frames/000025/a/x": "3"}
    rounds(tmp_path, files, Scripted("a", read))
    assert seen == ["1", "2", "2", "3", "3", "3", "3"]


def test_an_error_of_a_source_does_not_end_the_replay(tmp_path: Path) -> None:
    def read(machine: Machine) -> Iterator[Observation]:
        raise ValueError(machine.read("/a/x"))

    files = {"a/x": "1", "frames/000010/a/x": "2"}
    assert len(rounds(tmp_path, files, Scripted("a", read))) == 5


@pytest.mark.parametrize(
    ("intervals", "end", "times"),
    [
        ([], 0.0, [0.0]),
        ([], 30.0, [0.0, 30.0]),
        ([10.0, 10.0], 25.0, [0.0, 10.0, 20.0, 25.0]),
        ([60.0], 60.0, [0.0, 60.0]),
    ],
)
def test_due_times(intervals: list[float], end: float, times: list[float]) -> None:
    assert list(due_times(intervals, end)) == times


def test_due_times_of_a_month_take_no_memory() -> None:
    assert next(due_times([10.0], 1e12)) == 0.0


@given(st.lists(st.sampled_from([5.0, 10.0, 30.0, 60.0])), st.integers(0, 3600))
def test_due_times_are_complete_and_have_a_due_source(intervals: list[float], end: int) -> None:
    times = list(due_times(intervals, end))
    assert times == sorted(set(times))
    assert times[-1] == end
    assert all(at in {0, end} or any(at % interval == 0 for interval in intervals) for at in times)
    for interval in intervals:
        assert sum(at % interval == 0 for at in times) == end // interval + 1
