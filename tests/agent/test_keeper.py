from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.agent import state_file as keeper
from nodeguard.agent.state import AgentState, decode_state
from nodeguard.agent.state_file import StateFile, StateKeeper
from nodeguard.pipeline.pipeline import PipelineState
from nodeguard.sources.machine import LogCursor
from nodeguard.worker.lane import WorkerLane, filesystem_lane
from nodeguard.worker.progress import Deadlines
from tests.agent.scene import workers
from tests.waiting import PATIENCE, until_async


@pytest.fixture
def lane() -> Iterator[WorkerLane]:
    with filesystem_lane(deadlines=Deadlines(call=PATIENCE, first=PATIENCE, grace=PATIENCE)) as lane:
        yield lane


class CountingKeeper:
    """A StateKeeper with a counter as its state, and the error of each write."""

    def __init__(self, directory: Path, lane: WorkerLane) -> None:
        self.sequence = 0
        self.errors: list[str] = []
        self.stored = asyncio.Event()
        self.keeper = StateKeeper(StateFile(str(directory), lane), self.capture, self.on_stored)

    def capture(self) -> AgentState | None:
        return (
            AgentState("boot", 1.0, 1e9, pipeline=PipelineState(LogCursor("boot", self.sequence)))
            if self.sequence
            else None
        )

    def on_stored(self, state: AgentState, error: str) -> None:
        assert state.pipeline.cursor is not None
        self.errors.append(error)
        self.stored.set()


def on_disk(directory: Path) -> int:
    cursor = decode_state((directory / "state").read_bytes()).pipeline.cursor
    assert cursor is not None
    return cursor.sequence


async def test_a_change_is_written_at_once_and_later_ones_together(
    tmp_path: Path, lane: WorkerLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GAP", 0.1)
    counter = CountingKeeper(tmp_path / "state", lane)
    running = asyncio.ensure_future(counter.keeper.run())
    async with asyncio.timeout(PATIENCE):
        for last in (1, 50):
            while counter.sequence < last:
                counter.sequence += 1
                counter.keeper.mark_changed()
            await counter.stored.wait()
            counter.stored.clear()
            assert on_disk(tmp_path / "state") == last
    assert counter.errors == ["", ""]
    await until_async(lambda: not workers())
    running.cancel()


async def test_nothing_is_written_before_the_first_verdict(tmp_path: Path, lane: WorkerLane) -> None:
    counter = CountingKeeper(tmp_path / "state", lane)
    await counter.keeper.end()
    assert list(tmp_path.iterdir()) == []


async def test_the_last_state_is_written_at_the_end(tmp_path: Path, lane: WorkerLane) -> None:
    counter = CountingKeeper(tmp_path / "state", lane)
    counter.sequence = 7
    await counter.keeper.end()
    assert on_disk(tmp_path / "state") == 7


async def test_a_failed_write_is_reported(tmp_path: Path, lane: WorkerLane) -> None:
    (tmp_path / "state").write_text("no directory")
    counter = CountingKeeper(tmp_path / "state", lane)
    counter.sequence = 1
    await counter.keeper.end()
    assert "part of its path is no directory" in counter.errors[0]


async def test_save_now_waits_for_the_write(tmp_path: Path, lane: WorkerLane) -> None:
    counter = CountingKeeper(tmp_path / "state", lane)
    counter.sequence = 3
    running = asyncio.ensure_future(counter.keeper.run())
    async with asyncio.timeout(PATIENCE):
        assert await counter.keeper.save_now() == ""
    assert on_disk(tmp_path / "state") == 3
    running.cancel()


async def test_an_unexpected_error_is_reported_and_the_next_write_is_tried(
    tmp_path: Path, lane: WorkerLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GAP", 0.01)
    counter = CountingKeeper(tmp_path / "state", lane)
    counter.sequence = 1
    save = StateFile.save

    def broken(*_: object) -> str:
        monkeypatch.setattr(StateFile, "save", save)
        raise TypeError("no")

    monkeypatch.setattr(StateFile, "save", broken)
    running = asyncio.ensure_future(counter.keeper.run())
    async with asyncio.timeout(PATIENCE):
        assert await counter.keeper.save_now() == f"{tmp_path}/state/state: please report it: TypeError: no"
        assert await counter.keeper.save_now() == ""
    running.cancel()
