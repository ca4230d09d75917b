"""The spool: transitions that no aggregator has acknowledged, oldest first and bounded. Pure.

It is written together with the pipeline state that produced it, so a kill between the two neither loses nor
repeats a transition.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from nodeguard.model.instant import Instant
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.report import VERSION, Report

MAX_BYTES = 256 * 1024
MAX_ENTRIES = 64


class SpoolEntry(Struct, frozen=True):
    """One transition. number: rises with each entry and is never used again."""

    number: int
    data: bytes


class Spool(Struct, frozen=True):
    """A queue of transitions. next: number of the next entry. dropped: entries never acknowledged."""

    entries: tuple[SpoolEntry, ...] = ()
    next: int = 1
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.entries)


class _SpooledReport(Struct):
    """A report, and the time of its verdict, from which its age is computed when it is sent."""

    at: Instant
    report: Raw


def append(spool: Spool, data: bytes, thin: Callable[[bytes], bytes] = bytes) -> Spool:
    """Return the spool with one more entry; the oldest are dropped beyond the limits.

    thin: removes from an entry what matters only while it is the latest.
    """
    before = spool.entries
    if before:
        before = (*before[:-1], replace(before[-1], data=thin(before[-1].data)))
    entries = (*before, SpoolEntry(spool.next, data))
    over = max(0, len(entries) - MAX_ENTRIES)
    size = sum(len(entry.data) for entry in entries[over:])
    while size > MAX_BYTES:
        size -= len(entries[over].data)
        over += 1
    return Spool(entries[over:], spool.next + 1, spool.dropped + over)


def remove(spool: Spool, number: int, *, acknowledged: bool = True) -> Spool:
    """Return the spool without an entry, which counts as dropped unless it was acknowledged."""
    entries = tuple(entry for entry in spool.entries if entry.number != number)
    dropped = 0 if acknowledged else len(spool.entries) - len(entries)
    return replace(spool, entries=entries, dropped=spool.dropped + dropped)


def drop_all(spool: Spool) -> Spool:
    """Return the spool of an agent that no longer reports to any aggregator."""
    return Spool((), spool.next, spool.dropped + len(spool))


def encode_entry(report: Report, instant: Instant) -> bytes:
    """Return a report and the time of its verdict as bytes. Raises EncodingError."""
    return msgspec.json.encode(_SpooledReport(instant, Raw(encode(report))))


def without_passing(data: bytes) -> bytes:
    """Return an entry without its passing checks: only the latest report releases a mark."""
    try:
        report, at = decode_entry(data)
    except EncodingError:
        return data
    return encode_entry(replace(report, passing=()), at)


def decode_entry(data: bytes) -> tuple[Report, Instant]:
    """Return the report of an entry that this version or a neighbour wrote. Raises EncodingError."""
    try:
        entry = msgspec.json.decode(data, type=_SpooledReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EncodingError("a spool entry has a format of another version: it is skipped") from None
    message = decode_message(bytes(entry.report))
    if not isinstance(message, Report):
        raise EncodingError("a spool entry holds a heartbeat: it is skipped")
    return replace(message, version=VERSION), entry.at


def set_age(report: Report, at: Instant, now: Instant) -> Report:
    """Return a report with the seconds since its verdict, by the wall clock across a reboot."""
    age = now.mono - at.mono if at.boot_id == now.boot_id else now.wall - at.wall
    return replace(report, age=round(max(0.0, age), 3))
