"""What the agent remembers across its own restarts, and the form in which it is written down. Pure.

A file: one line `nodeguard-memory VERSION CHECKSUM`, then the memory in msgpack, compressed. Whatever its
version, the first two words stay.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.detached_gpus import DetachedGpus
from nodeguard.agent.reporting.delivery_state import DeliveryState
from nodeguard.agent.transitions import LoggedVerdict
from nodeguard.derive.state import DeriveState
from nodeguard.judge.retention import retention_priority
from nodeguard.judge.state import Background, JudgeState
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.target import target_kind
from nodeguard.sources.machine import LaneHangs, LogCursor

# What a node can have any number of, of names that anybody may choose; the least to be missed first. All of
# it is read again at once.
_MANY = ("probe", "fs")


def shrink_steps(derived: DeriveState, judged: JudgeState) -> Iterator[tuple[DeriveState, JudgeState]]:
    """Less and less of what is remembered: first goes what is read again anyway, last what is worst."""
    for what in _MANY:
        derived, judged = _without(derived, judged, what)
        yield derived, judged
    derived = replace(derived, latest={}, lines={}, said={})
    yield derived, judged
    slots = judged.targets
    left = sorted(slots, key=lambda name: retention_priority(slots[name]), reverse=True)
    while left:
        left = left[: len(left) // 2]
        yield derived, replace(judged, slots={name: slots[name] for name in left})
    yield DeriveState(boot_id=derived.boot_id), JudgeState(boot_id=judged.boot_id, cleared=judged.cleared)


def _without(derived: DeriveState, judged: JudgeState, what: str) -> tuple[DeriveState, JudgeState]:
    """What is remembered of all slots but those of one kind."""
    derived = replace(
        derived,
        latest={source: _less(reading, what) for source, reading in derived.latest.items()},
        best={slot: one for slot, one in derived.best.items() if target_kind(slot) != what},
    )
    return derived, replace(
        judged, slots={name: slot for name, slot in judged.targets.items() if target_kind(name) != what}
    )


def _less(reading: Reading, what: str) -> Reading:
    left = tuple(one for one in reading.observations if target_kind(one.target) != what)
    return reading if len(left) == len(reading.observations) else replace(reading, observations=left)


# To be raised where a reader of the one before would misunderstand what is written; a new field with a
# default is no reason, since both ways of reading do without it.
VERSION = 1

# Bytes of the file: what an agent writes down again and again must be no burden on a node's disk.
MAX_BYTES = 256 << 10

_MAGIC = b"nodeguard-memory"
# Bytes that a memory may take unpacked: far more than any node's.
_UNPACKED = 64 << 20
# Most of a memory are names that come again and again: the quickest level makes a tenth of it.
_LEVEL = 1

_encode = msgspec.msgpack.Encoder().encode


class AgentState(Struct, frozen=True):
    """The judgement of a node after a round, how far it had read the kernel log, and what it has told.

    boot_id, mono, wall: the moment of that round, as in Instant. cursor: the last record of the kernel log
    that the judgement has in it, None where none was read. hangs: calls behind which no second worker may be
    started in this boot. post: what is on its way to and from receivers. told: what the log has said.
    lost, lost_at: why a memory before this one could not be used, and when that was, by the wall clock.
    """

    boot_id: str = ""
    mono: float = 0.0
    wall: float = 0.0
    cursor: LogCursor | None = None
    hangs: LaneHangs = LaneHangs()
    derived: DeriveState = DeriveState()
    judged: JudgeState = JudgeState()
    delivery: DeliveryState = DeliveryState()
    logged: LoggedVerdict | None = None
    detached: DetachedGpus = DetachedGpus()
    load_error: str = ""
    load_error_at: float = 0.0


class UnusableStateError(Exception):
    """A memory that cannot be read or written: what is wrong with it, as half a sentence."""


def encode_state(memory: AgentState) -> bytes:
    """A memory as it is written down, without what only saves work, and without what would make it too long.

    Raises UnusableMemoryError.
    """
    whole = replace(memory, judged=replace(memory.judged, background=Background(), settled={}))
    data = _written(whole)
    for derived, judged in shrink_steps(whole.derived, whole.judged) if len(data) > MAX_BYTES else ():
        data = _written(replace(whole, derived=derived, judged=judged))
        if len(data) <= MAX_BYTES:
            break
    return data


def _written(memory: AgentState) -> bytes:
    try:
        body = zlib.compress(_encode(memory), _LEVEL)
    except (ValueError, OverflowError) as error:
        # A name that is no text, or a number of more than 64 bits.
        raise UnusableStateError(f"cannot be encoded ({error})") from error
    return b"%s %d %08x\n" % (_MAGIC, VERSION, zlib.crc32(body)) + body


def decode_state(data: bytes) -> AgentState:
    """The memory that was written down. Raises UnusableMemoryError."""
    head, _, body = data.partition(b"\n")
    magic, _, rest = head.partition(b" ")
    version, _, checksum = rest.partition(b" ")
    if magic != _MAGIC or not version.isdigit():
        raise UnusableStateError("is truncated, corrupt, or no memory of nodeguard")
    if int(version[:9]) > VERSION:
        raise UnusableStateError(
            f"has version {int(version[:9])}, and this nodeguard reads {VERSION}: a newer one wrote it"
        )
    if checksum != b"%08x" % zlib.crc32(body):
        raise UnusableStateError("is truncated or corrupt: its checksum is wrong")
    try:
        return msgspec.msgpack.decode(zlib.decompressobj().decompress(body, _UNPACKED), type=AgentState)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableStateError(f"is not what this nodeguard writes ({error})") from error


def resume_state(memory: AgentState, now: Instant) -> tuple[AgentState, str]:
    """What of a memory holds at this moment, and what is wrong with it; empty where nothing is.

    A memory of another boot is left to derivation and judgement, which know what outlives a reboot. One of a
    later moment of this very boot is of a machine that was set back since, as a virtual machine is by a
    snapshot: of what it tells, the inventory and the post are no matter of time, and what people cleared is
    over.
    """
    if memory.boot_id != now.boot_id:
        return replace(memory, hangs=LaneHangs()), ""
    if memory.mono <= now.mono:
        return memory, ""
    ahead = memory.mono - now.mono
    known = replace(DeriveState(boot_id=now.boot_id), best=memory.derived.best)
    cleared = tuple(replace(one, at=min(one.at, now.mono)) for one in memory.judged.cleared)
    judged = JudgeState(boot_id=now.boot_id if cleared else "", cleared=cleared)
    wrong = f"was written {ahead:.0f} s later in this boot: the machine was set back"
    return AgentState(derived=known, judged=judged, delivery=memory.delivery), wrong
