from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.aggregator.backends.standalone_state import (
    AdvisedMarks,
    StandaloneState,
    StandaloneStateError,
    StandaloneStateWriter,
    encode_state,
    read_state,
    write_state,
)
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from tests.agent.test_agent import TOO_LARGE
from tests.waiting import PATIENCE

names = st.text(max_size=8)
some_incidents = st.builds(
    Incident, name=names, node=names, uid=names, target=names, cause=names, health=st.sampled_from(Health),
    state=st.sampled_from(IncidentState), first_seen=st.floats(0.0, 1e9), last_transition=st.floats(0.0, 1e9), resolved_at=st.floats(0.0, 1e9),
)  # fmt: skip
states = st.builds(
    StandaloneState, pause=names, decisions=st.dictionaries(names, st.builds(OperatorDecision, names), max_size=4),
    incidents=st.dictionaries(names, some_incidents, max_size=8), gpus=st.dictionaries(names, st.integers(0, 16)),
    nodes=st.dictionaries(names, st.builds(AdvisedMarks, state=names), max_size=4),
)  # fmt: skip


@given(states)
def test_the_encoded_pieces_are_decoded_to_the_same_state(state: StandaloneState) -> None:
    pieces, omitted = encode_state(state)
    assert msgspec.json.decode(b"".join(pieces), type=StandaloneState) == state
    assert omitted == 0


@given(states, st.integers(0, 4000))
def test_a_file_is_never_longer_than_its_limit(state: StandaloneState, limit: int) -> None:
    try:
        pieces, omitted = encode_state(state, limit)
    except StandaloneStateError:
        bare = msgspec.structs.replace(state, incidents={})
        assert len(b"".join(encode_state(bare)[0])) > limit - 20
        return
    data = b"".join(pieces)
    stored = msgspec.json.decode(data, type=StandaloneState)
    assert len(data) <= limit
    assert len(stored.incidents) == len(state.incidents) - omitted
    assert stored.incidents.items() <= state.incidents.items()
    assert msgspec.structs.replace(stored, incidents=state.incidents) == state


def test_resolved_incidents_are_omitted_before_open_ones(tmp_path: Path) -> None:
    incidents = {
        f"{number}": Incident(
            f"{number}", "n", "u", "r", "c", Health.FATAL, state, 1.0, 1.0, message="x" * 500
        )
        for number, state in enumerate([IncidentState.RESOLVED, IncidentState.OPEN] * 500)
    }
    path = str(tmp_path / "decisions.json")
    limit = len(msgspec.json.encode(incidents)) * 3 // 4
    omitted = write_state(path, StandaloneState(incidents=incidents), limit=limit)
    stored = read_state(path).incidents
    assert 250 <= omitted <= 450
    assert {name for name, incident in incidents.items() if incident.is_open} <= stored.keys()


class Disk:
    """A disk that responds when a test sets `responds`."""

    def __init__(self) -> None:
        self.responds = threading.Event()
        self.written: list[str] = []
        self.at_once = self.most_at_once = 0
        self.error = ""

    def write(self, state: StandaloneState) -> int:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.responds.wait(PATIENCE)
        self.at_once -= 1
        if self.error:
            raise StandaloneStateError(self.error)
        self.written.append(state.pause)
        return 0


async def test_only_the_latest_waiting_state_is_written_and_no_caller_blocks() -> None:
    disk, done = Disk(), list[tuple[str, int]]()
    writer = StandaloneStateWriter(disk.write, lambda error, omitted: done.append((error, omitted)))
    first = writer.put(StandaloneState(pause="first"))
    await asyncio.sleep(0)
    others = [writer.put(StandaloneState(pause=f"{number}")) for number in range(100)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert (first.done(), disk.written) == (False, [])
    disk.responds.set()
    await writer.wait_idle()
    assert disk.written == ["first", "99"]
    assert disk.most_at_once == 1
    assert await asyncio.gather(first, *others) == [""] * 101
    assert done == [("", 0)] * 2


@pytest.mark.parametrize("error", ["the disk is full: make room", ""])
async def test_the_result_of_a_write_is_its_error(error: str) -> None:
    disk = Disk()
    disk.responds.set()
    disk.error = error
    writer = StandaloneStateWriter(disk.write, lambda *_: None)
    assert await writer.put(StandaloneState(pause="x")) == error
    disk.error = ""
    assert await writer.put(StandaloneState(pause="y")) == ""


async def test_waiting_for_a_disk_that_hangs_has_a_limit() -> None:
    disk = Disk()
    writer = StandaloneStateWriter(disk.write, lambda *_: None)
    writer.put(StandaloneState())
    await writer.wait_idle(0.01)
    assert writer.is_busy
    disk.responds.set()
    await writer.wait_idle()
    assert not writer.is_busy


async def test_an_internal_error_does_not_end_the_writer() -> None:
    errors = [ValueError("x")]

    def broken(_: StandaloneState) -> int:
        if errors:
            raise errors.pop()
        return 0

    writer = StandaloneStateWriter(broken, lambda *_: None)
    assert "please report it: ValueError: x" in await writer.put(StandaloneState())
    assert await writer.put(StandaloneState()) == ""


async def test_a_thread_that_cannot_be_started_is_an_error_of_its_write() -> None:
    disk = Disk()
    disk.responds.set()
    writer = StandaloneStateWriter(disk.write, lambda *_: None)
    before = threading.stack_size(TOO_LARGE)
    try:
        error = await writer.put(StandaloneState(pause="x"))
    finally:
        threading.stack_size(before)
    assert "raise the limit on processes" in error
    assert await writer.put(StandaloneState(pause="y")) == ""
