"""A report as it lies in the spool: with the moment of its verdict, which its age is told from. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from nodeguard.model.instant import Instant
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.report import VERSION, Report


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
