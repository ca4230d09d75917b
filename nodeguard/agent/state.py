"""The agent state that survives a restart, and its encoding in the state file. Pure.

The file is one line `nodeguard-state VERSION CHECKSUM`, then the state in msgpack, compressed. Every version
keeps the first two words.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.instructions import DetachedGpus
from nodeguard.agent.reporting.delivery_queue import DeliveryState
from nodeguard.agent.transitions import LoggedVerdict
from nodeguard.derive.state import DeriveState
from nodeguard.judge.formatting import format_duration
from nodeguard.judge.judge import retention_priority
from nodeguard.judge.state import Background, JudgeState
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.target import target_kind
from nodeguard.pipeline.pipeline import PipelineState
from nodeguard.sources.machine import LaneHangs
from nodeguard.wire.versions import VersionReceipts

# Raised when a reader of the previous version would misunderstand the file. A new field with a default needs
# no new version, since a reader of either version works without it.
VERSION = 1

# Bytes of the file: the agent writes it again and again and must not load the node's disk.
MAX_BYTES = 256 << 10

_MAGIC = b"nodeguard-state"
# Bytes of the uncompressed state: far more than any node needs.
_UNPACKED = 64 << 20
# Most of a state are names that repeat: the fastest level compresses it to a tenth.
_LEVEL = 1

# Kinds of targets without a limit on their number, the least important kind first. After a restart the agent
# reads all of them again at once.
_UNBOUNDED_KINDS = ("probe", "fs")

_encode = msgspec.msgpack.Encoder().encode


class AgentState(Struct, frozen=True):
    """The state that the agent stores after an evaluation, to continue after a restart.

    boot_id, mono: the time of that evaluation, as in Instant. hangs: calls behind which no second
    worker may start in this boot. logged: the verdict that the log shows. receipts: of the node's
    versions, by the wall clock. load_error, load_error_at: why an earlier state could not be used, and when
    that was, by the wall clock.
    """

    boot_id: str = ""
    mono: float = 0.0
    hangs: LaneHangs = LaneHangs()
    pipeline: PipelineState = PipelineState()
    delivery: DeliveryState = DeliveryState()
    logged: LoggedVerdict | None = None
    detached: DetachedGpus = DetachedGpus()
    receipts: VersionReceipts = VersionReceipts()
    load_error: str = ""
    load_error_at: float = 0.0


def capture_state(
    pipeline: PipelineState, instant: Instant, hangs: LaneHangs, detached: DetachedGpus | None = None
) -> AgentState:
    """Return the state after an evaluation at an instant."""
    return AgentState(
        boot_id=instant.boot_id,
        mono=instant.mono,
        hangs=hangs,
        pipeline=pipeline,
        detached=detached or DetachedGpus(),
    )


class UnusableStateError(Exception):
    """A state that cannot be read or written: the reason, as half a sentence."""


def encode_state(state: AgentState) -> bytes:
    """Return the bytes of the state file, at most MAX_BYTES.

    It leaves out caches, and the least important targets if the file would be too long. Raises
    UnusableStateError.
    """
    pipeline = state.pipeline
    pipeline = replace(pipeline, judged=replace(pipeline.judged, background=Background(), results={}))
    data = _encode_file(replace(state, pipeline=pipeline))
    for smaller in shrink_steps(pipeline) if len(data) > MAX_BYTES else ():
        data = _encode_file(replace(state, pipeline=smaller))
        if len(data) <= MAX_BYTES:
            break
    return data


def _encode_file(state: AgentState) -> bytes:
    try:
        body = zlib.compress(_encode(state), _LEVEL)
    except (ValueError, OverflowError) as error:
        # A name that is not valid Unicode, or a number of more than 64 bits.
        raise UnusableStateError(f"cannot be encoded ({error})") from error
    return b"%s %d %08x\n" % (_MAGIC, VERSION, zlib.crc32(body)) + body


def decode_state(data: bytes) -> AgentState:
    """Return the state in the bytes of a state file. Raises UnusableStateError."""
    head, _, body = data.partition(b"\n")
    magic, _, rest = head.partition(b" ")
    version, _, checksum = rest.partition(b" ")
    if magic != _MAGIC or not version.isdigit() or int(version[:9]) < 1:
        raise UnusableStateError("is truncated, corrupt or not a state file of nodeguard")
    if int(version[:9]) > VERSION:
        raise UnusableStateError(
            f"has version {int(version[:9])}, and this nodeguard reads {VERSION}: a newer version wrote it"
        )
    if checksum != b"%08x" % zlib.crc32(body):
        raise UnusableStateError("is truncated or corrupt: its checksum is wrong")
    try:
        return msgspec.msgpack.decode(zlib.decompressobj().decompress(body, _UNPACKED), type=AgentState)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableStateError(f"does not have the format of this nodeguard ({error})") from error


def resume_state(state: AgentState, now: Instant) -> tuple[AgentState, str]:
    """Return the part of a state that is valid at a time, and the problem of the other part, empty for none.

    The pipeline itself handles the state of another boot: it knows what survives a reboot. A state of a later
    time of this boot belongs to a machine that was set back, as a snapshot does with a virtual machine: only
    the inventory, the known components, the deliveries and what operators cleared are kept.
    """
    if state.boot_id != now.boot_id:
        return replace(state, hangs=LaneHangs()), ""
    if state.mono <= now.mono:
        return state, ""
    ahead = state.mono - now.mono
    derived = DeriveState(boot_id=now.boot_id, best=state.pipeline.derived.best)
    cleared = tuple(replace(clear, at=min(clear.at, now.mono)) for clear in state.pipeline.judged.cleared)
    judged = JudgeState(boot_id=now.boot_id if cleared else "", cleared=cleared)
    error = f"was written {format_duration(ahead)} later in this boot: the machine was set back"
    pipeline = PipelineState(None, derived, judged, state.pipeline.components)
    return AgentState(pipeline=pipeline, delivery=state.delivery), error


def shrink_steps(state: PipelineState) -> Iterator[PipelineState]:
    """Yield smaller and smaller versions of a state.

    First it drops the data that the agent reads again anyway, last the worst findings.
    """
    derived, judged = state.derived, state.judged
    for kind in _UNBOUNDED_KINDS:
        derived, judged = _without_kind(derived, judged, kind)
        yield replace(state, derived=derived, judged=judged)
    derived = replace(derived, latest={}, lines={}, xids={})
    yield replace(state, derived=derived, judged=judged)
    targets = sorted(
        judged.targets, key=lambda target: retention_priority(judged.targets[target]), reverse=True
    )
    while targets:
        targets = targets[: len(targets) // 2]
        fewer = replace(judged, targets={target: judged.targets[target] for target in targets})
        yield replace(state, derived=derived, judged=fewer)
    yield replace(
        state,
        derived=DeriveState(boot_id=derived.boot_id),
        judged=JudgeState(boot_id=judged.boot_id, cleared=judged.cleared),
        components={},
    )


def _without_kind(derived: DeriveState, judged: JudgeState, kind: str) -> tuple[DeriveState, JudgeState]:
    """Return both states without the targets of one kind."""
    return replace(
        derived,
        latest={source: _reading_without(reading, kind) for source, reading in derived.latest.items()},
        best={target: best for target, best in derived.best.items() if target_kind(target) != kind},
    ), replace(
        judged,
        targets={target: state for target, state in judged.targets.items() if target_kind(target) != kind},
    )


def _reading_without(reading: Reading, kind: str) -> Reading:
    observations = tuple(
        observation for observation in reading.observations if target_kind(observation.target) != kind
    )
    if len(observations) == len(reading.observations):
        return reading
    return replace(reading, observations=observations)
