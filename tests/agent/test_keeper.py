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


class Kept:
    """A keeper of a memory that counts, and what came of each writing."""

    def __init__(self, directory: Path, lane: WorkerLane) -> None:
        self.sequence = 0
        self.wrong: list[str] = []
        self.heard = asyncio.Event()
        self.keeper = StateKeeper(StateFile(str(directory), lane), self.remember, self.heed)

    def remember(self) -> AgentState | None:
        return (
            AgentState("boot", 1.0, 1e9, pipeline=PipelineState(LogCursor("boot", self.sequence)))
            if self.sequence
            else None
        )

    def heed(self, memory: AgentState, wrong: str) -> None:
        assert memory.pipeline.cursor is not None
        self.wrong.append(wrong)
        self.heard.set()


def on_disk(directory: Path) -> int:
    cursor = decode_state((directory / "state").read_bytes()).pipeline.cursor
    assert cursor is not None
    return cursor.sequence


async def test_what_changes_is_written_at_once_and_what_follows_together(
    tmp_path: Path, lane: WorkerLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GAP", 0.1)
    kept = Kept(tmp_path / "state", lane)
    running = asyncio.ensure_future(kept.keeper.run())
    async with asyncio.timeout(PATIENCE):
        for last in (1, 50):
            while kept.sequence < last:
                kept.sequence += 1
                kept.keeper.mark_changed()
            await kept.heard.wait()
            kept.heard.clear()
            assert on_disk(tmp_path / "state") == last
    assert kept.wrong == ["", ""]
    await until_async(lambda: not workers())
    running.cancel()


async def test_nothing_is_written_before_anything_is_known(tmp_path: Path, lane: WorkerLane) -> None:
    kept = Kept(tmp_path / "state", lane)
    await kept.keeper.end()
    assert list(tmp_path.iterdir()) == []


async def test_the_last_moment_is_on_the_disk_at_the_end(tmp_path: Path, lane: WorkerLane) -> None:
    kept = Kept(tmp_path / "state", lane)
    kept.sequence = 7
    await kept.keeper.end()
    assert on_disk(tmp_path / "state") == 7


async def test_what_cannot_be_written_is_told(tmp_path: Path, lane: WorkerLane) -> None:
    (tmp_path / "state").write_text("no directory")
    kept = Kept(tmp_path / "state", lane)
    kept.sequence = 1
    await kept.keeper.end()
    assert "part of its path is no directory" in kept.wrong[0]


async def test_who_must_know_waits_until_it_is_on_the_disk(tmp_path: Path, lane: WorkerLane) -> None:
    kept = Kept(tmp_path / "state", lane)
    kept.sequence = 3
    running = asyncio.ensure_future(kept.keeper.run())
    async with asyncio.timeout(PATIENCE):
        assert await kept.keeper.save_now() == ""
    assert on_disk(tmp_path / "state") == 3
    running.cancel()


async def test_an_error_of_our_own_is_told_and_the_next_writing_tried(
    tmp_path: Path, lane: WorkerLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_GAP", 0.01)
    kept = Kept(tmp_path / "state", lane)
    kept.sequence = 1
    save = StateFile.save

    def broken(*_: object) -> str:
        monkeypatch.setattr(StateFile, "save", save)
        raise TypeError("no")

    monkeypatch.setattr(StateFile, "save", broken)
    running = asyncio.ensure_future(kept.keeper.run())
    async with asyncio.timeout(PATIENCE):
        assert await kept.keeper.save_now() == f"{tmp_path}/state/state: please report it: TypeError: no"
        assert await kept.keeper.save_now() == ""
    running.cancel()
