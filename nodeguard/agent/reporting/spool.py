"""Transitions that nobody has heard yet, oldest first and bounded. Pure.

They are kept in one write with the judgement that they came of, so that whoever is killed between the two
loses neither and doubles neither.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from nodeguard.model.instant import Instant
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.report import VERSION, Report

MOST_BYTES = 256 * 1024
MOST_ENTRIES = 64


class Entry(Struct, frozen=True):
    """One transition. number: rises with each, never used again."""

    number: int
    data: bytes


class Spool(Struct, frozen=True):
    """A queue. next: number of the next entry. dropped: entries that were let go unheard."""

    entries: tuple[Entry, ...] = ()
    next: int = 1
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.entries)


def put(spool: Spool, data: bytes, thin: Callable[[bytes], bytes] = bytes) -> Spool:
    """The spool with one more entry; the oldest are dropped where it would be too long.

    thin: takes from an entry what counts only while it is the latest.
    """
    before = spool.entries
    if before:
        before = (*before[:-1], replace(before[-1], data=thin(before[-1].data)))
    entries = (*before, Entry(spool.next, data))
    over = max(0, len(entries) - MOST_ENTRIES)
    size = sum(len(entry.data) for entry in entries[over:])
    while size > MOST_BYTES:
        size -= len(entries[over].data)
        over += 1
    return Spool(entries[over:], spool.next + 1, spool.dropped + over)


def without(spool: Spool, number: int, *, heard: bool = True) -> Spool:
    """The spool without an entry. heard: whether somebody has it; else it is dropped."""
    left = tuple(entry for entry in spool.entries if entry.number != number)
    dropped = 0 if heard else len(spool.entries) - len(left)
    return replace(spool, entries=left, dropped=spool.dropped + dropped)


def emptied(spool: Spool) -> Spool:
    """The spool of somebody who tells nobody any more: what waited is dropped."""
    return Spool((), spool.next, spool.dropped + len(spool))


class _Kept(Struct):
    at: Instant
    report: Raw


def keep(report: Report, instant: Instant) -> bytes:
    """A report and the moment of its verdict as bytes. Raises EncodingError where the report is too large."""
    return msgspec.json.encode(_Kept(instant, Raw(encode(report))))


def thinned(data: bytes) -> bytes:
    """What was kept, without what is proven: only the latest report gives a mark back."""
    try:
        report, at = restored(data)
    except EncodingError:
        return data
    return keep(replace(report, proven=()), at)


def restored(data: bytes) -> tuple[Report, Instant]:
    """What was kept, by this version or one next to it. Raises EncodingError."""
    try:
        kept = msgspec.json.decode(data, type=_Kept)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EncodingError("an entry of the spool is none of this version's: it is left out") from None
    message = decode_message(bytes(kept.report))
    if not isinstance(message, Report):
        raise EncodingError("an entry of the spool holds a heartbeat: it is left out")
    return replace(message, version=VERSION), kept.at


def aged(report: Report, at: Instant, now: Instant) -> Report:
    """A report as it is sent now: with the seconds since its verdict, by the wall clock across a reboot."""
    age = now.mono - at.mono if at.boot_id == now.boot_id else now.wall - at.wall
    return replace(report, age=round(max(0.0, age), 3))
