from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.agent import state as module
from nodeguard.agent.state import (
    AgentState,
    UnusableStateError,
    decode_state,
    encode_state,
    resume_state,
    shrink_steps,
)
from nodeguard.derive.references import BestReadings
from nodeguard.derive.state import DeriveState
from nodeguard.judge.state import (
    ActiveFinding,
    Background,
    JudgeState,
    OperatorClear,
    RememberedEvent,
    TargetResult,
    TargetState,
)
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import PipelineState
from nodeguard.sources.machine import LaneHangs, LogCursor
from nodeguard.worker.lane_state import Hang
from tests.judge.judged_node import finding

EVENT = RememberedEvent(
    "a.b", "kmsg", 1.0, 2.0, 3, "caf\u00e9 \U0001f600", {"xid": 79, "name": "x"}, (1.0, 2.0, 2.0)
)
SLOT = TargetState(first_seen=1.0, events={"kmsg a.b": EVENT}, true_since={"c": 0.5})
STATE = AgentState(
    boot_id="boot",
    mono=100.0,
    hangs=LaneHangs(filesystem=Hang("/data", "statvfs(/data)")),
    pipeline=PipelineState(
        cursor=LogCursor("boot", 7),
        derived=DeriveState(boot_id="boot", best={NODE: BestReadings("", {"a": 1.0})}),
        judged=JudgeState(boot_id="boot", targets={NODE: SLOT}),
    ),
)

PROBE, MOUNT, GPU, OTHER = "probe/a", "fs:/x", "gpu/0000:1b:00", "gpu/0000:43:00"
FAULTY = TargetState(first_seen=0.0, active={"one": ActiveFinding(0.0, finding(health=Health.FATAL))})
HEALTHY = TargetState(first_seen=0.0)
CLEARED = OperatorClear("one", GPU, "", 1.0, "ann")


def test_a_state_is_decoded_as_it_was_encoded() -> None:
    assert decode_state(encode_state(STATE)) == STATE
    assert decode_state(encode_state(AgentState())) == AgentState()


def test_caches_are_left_out() -> None:
    results = {NODE: TargetResult(SLOT, (), (), 0, (), {}, 1.0, {}, {}, {})}
    judged = JudgeState("boot", {NODE: SLOT}, background=Background(one_shot=True), results=results)
    assert decode_state(encode_state(AgentState(pipeline=PipelineState(judged=judged)))) == AgentState(
        pipeline=PipelineState(judged=JudgeState("boot", {NODE: SLOT}))
    )


def test_a_state_of_version_1_is_decoded() -> None:
    path = Path(__file__).parent / "state-1"
    assert decode_state(path.read_bytes()) == STATE


@given(st.data())
def test_truncated_and_changed_files_are_refused(data: st.DataObject) -> None:
    whole = encode_state(STATE)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    for wrong in (whole[:at], bytes(changed)):
        with pytest.raises(UnusableStateError):
            decode_state(wrong)


@given(st.binary())
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(UnusableStateError):
        decode_state(data)


def test_version_0_is_refused() -> None:
    with pytest.raises(UnusableStateError, match="not a state file of nodeguard"):
        decode_state(encode_state(STATE).replace(b" 1 ", b" 0 ", 1))


def test_a_newer_version_is_named() -> None:
    with pytest.raises(UnusableStateError, match="version 2, and this nodeguard reads 1"):
        decode_state(b"nodeguard-state 2 and all that\nanything")


@pytest.mark.parametrize(
    "body", [b"not compressed", zlib.compress(b"\xc1"), zlib.compress(b"\x81\xa4mono\xa1x")]
)
def test_invalid_content_with_a_checksum_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableStateError, match="not have the format of this nodeguard"):
        decode_state(b"nodeguard-state 1 %08x\n" % zlib.crc32(body) + body)


def test_the_size_of_the_uncompressed_state_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNPACKED", 16)
    with pytest.raises(UnusableStateError):
        decode_state(encode_state(STATE))


@pytest.mark.parametrize("odd", ["\udcff", 1 << 70])
def test_a_state_that_cannot_be_encoded_is_an_error(odd: str | int) -> None:
    event = RememberedEvent("a.b", "kmsg", 1.0, 1.0, 1, "", {"x": odd}, ())
    slots = {NODE: TargetState(first_seen=1.0, events={"x": event})}
    with pytest.raises(UnusableStateError, match="cannot be encoded"):
        encode_state(AgentState(pipeline=PipelineState(judged=JudgeState(targets=slots))))


def test_a_state_of_this_boot_is_resumed() -> None:
    assert resume_state(STATE, Instant(1e9, 100.0, "boot")) == (STATE, "")


def test_hangs_end_with_their_boot() -> None:
    state, wrong = resume_state(STATE, Instant(1e9, 5.0, "next"))
    assert (state.hangs, state.pipeline, wrong) == (LaneHangs(), STATE.pipeline, "")


def test_after_a_restored_snapshot_clears_count_up_to_now() -> None:
    clears = tuple(OperatorClear("one", NODE, "", at, "ann") for at in (20.0, 90.0))
    state, _ = resume_state(
        replace(STATE, pipeline=PipelineState(judged=JudgeState("boot", cleared=clears))),
        Instant(1e9, 40.0, "boot"),
    )
    assert [clear.at for clear in state.pipeline.judged.cleared] == [20.0, 40.0]


def test_after_a_restored_snapshot_only_the_inventory_is_used() -> None:
    state, wrong = resume_state(STATE, Instant(1e9, 40.0, "boot"))
    assert state == AgentState(
        pipeline=PipelineState(derived=DeriveState(boot_id="boot", best=STATE.pipeline.derived.best))
    )
    assert wrong == "was written 1 min later in this boot: the machine was set back"


def test_deeply_nested_content_is_refused() -> None:
    body = zlib.compress(b"\x81\xa1x" + b"\x91" * 100_000 + b"\x01")
    with pytest.raises(UnusableStateError, match="does not have the format of this nodeguard"):
        decode_state(b"nodeguard-state 1 %08x\n" % zlib.crc32(body) + body)


def test_a_large_state_drops_probes_and_mounts_first() -> None:
    reading = Reading("a", 1.0, tuple(Observation("a", slot) for slot in (PROBE, MOUNT, GPU)))
    best = {slot: BestReadings("", {"a.b": 1.0}) for slot in (MOUNT, GPU)}
    slots = {PROBE: FAULTY, MOUNT: FAULTY, NODE: HEALTHY, OTHER: HEALTHY, GPU: FAULTY}
    steps = list(
        shrink_steps(
            PipelineState(
                derived=DeriveState("boot", latest={"a": reading}, best=best),
                judged=JudgeState("boot", slots, cleared=(CLEARED,)),
            )
        )
    )
    targets = [set(step.judged.targets) for step in steps]
    assert targets[:3] == [{MOUNT, NODE, OTHER, GPU}, {NODE, OTHER, GPU}, {NODE, OTHER, GPU}]
    assert targets[3:] == [{GPU}, set(), set()]
    latest = [
        {observation.target for row in step.derived.latest.values() for observation in row.observations}
        for step in steps
    ]
    assert latest[:3] == [{MOUNT, GPU}, {GPU}, set()]
    assert [set(step.derived.best) for step in steps][1:3] == [{GPU}, {GPU}]
    assert all(step.judged.cleared == (CLEARED,) for step in steps), "what operators cleared stays"
