"""What the agent remembers across its own restarts, and the form in which it is written down. Pure.

A file: one line `nodeguard-memory VERSION CHECKSUM`, then the memory in msgpack, compressed. Whatever its
version, the first two words stay.
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.lean import leaner
from nodeguard.agent.release import Release
from nodeguard.agent.reporting.mailbox import Post
from nodeguard.agent.transitions import Told
from nodeguard.derive.state import DeriveState
from nodeguard.judge.state import Background, JudgeState
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import Cursor, Hangs

# To be raised where a reader of the one before would misunderstand what is written; a new field with a
# default is no reason, since both ways of reading do without it.
VERSION = 1

# Bytes of the file: what an agent writes down again and again must be no burden on a node's disk.
LONGEST = 256 << 10

_MAGIC = b"nodeguard-memory"
# Bytes that a memory may take unpacked: far more than any node's.
_UNPACKED = 64 << 20
# Most of a memory are names that come again and again: the quickest level makes a tenth of it.
_LEVEL = 1

_encode = msgspec.msgpack.Encoder().encode


class Memory(Struct, frozen=True):
    """The judgement of a node after a round, how far it had read the kernel log, and what it has told.

    boot_id, mono, wall: the moment of that round, as in Instant. cursor: the last record of the kernel log
    that the judgement has in it, None where none was read. hangs: calls behind which no second worker may be
    started in this boot. post: what is on its way to and from receivers. told: what the log has said.
    lost, lost_at: why a memory before this one could not be used, and when that was, by the wall clock.
    """

    boot_id: str = ""
    mono: float = 0.0
    wall: float = 0.0
    cursor: Cursor | None = None
    hangs: Hangs = Hangs()
    derived: DeriveState = DeriveState()
    judged: JudgeState = JudgeState()
    post: Post = Post()
    told: Told | None = None
    release: Release = Release()
    lost: str = ""
    lost_at: float = 0.0


class UnusableMemoryError(Exception):
    """A memory that cannot be read or written: what is wrong with it, as half a sentence."""


def encoded(memory: Memory) -> bytes:
    """A memory as it is written down, without what only saves work, and without what would make it too long.

    Raises UnusableMemoryError.
    """
    whole = replace(memory, judged=replace(memory.judged, background=Background(), settled={}))
    data = _written(whole)
    for derived, judged in leaner(whole.derived, whole.judged) if len(data) > LONGEST else ():
        data = _written(replace(whole, derived=derived, judged=judged))
        if len(data) <= LONGEST:
            break
    return data


def _written(memory: Memory) -> bytes:
    try:
        body = zlib.compress(_encode(memory), _LEVEL)
    except (ValueError, OverflowError) as error:
        # A name that is no text, or a number of more than 64 bits.
        raise UnusableMemoryError(f"cannot be encoded ({error})") from error
    return b"%s %d %08x\n" % (_MAGIC, VERSION, zlib.crc32(body)) + body


def decoded(data: bytes) -> Memory:
    """The memory that was written down. Raises UnusableMemoryError."""
    head, _, body = data.partition(b"\n")
    magic, _, rest = head.partition(b" ")
    version, _, checksum = rest.partition(b" ")
    if magic != _MAGIC or not version.isdigit():
        raise UnusableMemoryError("is truncated, corrupt, or no memory of nodeguard")
    if int(version[:9]) > VERSION:
        raise UnusableMemoryError(
            f"has version {int(version[:9])}, and this nodeguard reads {VERSION}: a newer one wrote it"
        )
    if checksum != b"%08x" % zlib.crc32(body):
        raise UnusableMemoryError("is truncated or corrupt: its checksum is wrong")
    try:
        return msgspec.msgpack.decode(zlib.decompressobj().decompress(body, _UNPACKED), type=Memory)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableMemoryError(f"is not what this nodeguard writes ({error})") from error


def resumed(memory: Memory, now: Instant) -> tuple[Memory, str]:
    """What of a memory holds at this moment, and what is wrong with it; empty where nothing is.

    A memory of another boot is left to derivation and judgement, which know what outlives a reboot. One of a
    later moment of this very boot is of a machine that was set back since, as a virtual machine is by a
    snapshot: of what it tells, the inventory and the post are no matter of time, and what people cleared is
    over.
    """
    if memory.boot_id != now.boot_id:
        return replace(memory, hangs=Hangs()), ""
    if memory.mono <= now.mono:
        return memory, ""
    ahead = memory.mono - now.mono
    known = replace(DeriveState(boot_id=now.boot_id), best=memory.derived.best)
    cleared = tuple(replace(one, at=min(one.at, now.mono)) for one in memory.judged.cleared)
    judged = JudgeState(boot_id=now.boot_id if cleared else "", cleared=cleared)
    wrong = f"was written {ahead:.0f} s later in this boot: the machine was set back"
    return Memory(derived=known, judged=judged, post=memory.post), wrong
