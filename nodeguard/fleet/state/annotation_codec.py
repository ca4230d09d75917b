"""Records as the annotation on a Node or device holds them. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from nodeguard.model.mark import Charge, MarkRecord

# Bytes of an annotation that is read at all: all annotations of an object together may have 256 KiB.
MAX_READ_BYTES = 64 * 1024

# Bytes up to which causes are added to a record; what else it holds has room beside them.
MAX_CAUSES_BYTES = 32 * 1024

_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(MarkRecord)


def encode_record(record: MarkRecord) -> str:
    """A record as text; empty where there is nothing to remember."""
    return "" if record == MarkRecord() else _ENCODER.encode(record).decode()


def decode_record(text: str) -> MarkRecord | None:
    """A record from its text; None where it is none, as somebody has edited it. Whatever they did, there is a
    charge just where there is a cause.
    """
    if not text:
        return MarkRecord()
    if len(text) > MAX_READ_BYTES:
        return None
    try:
        record = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if bool(record.causes) == (record.charge is not None):
        return record
    first = min(record.causes, key=lambda one: one.since, default=None)
    return replace(record, charge=Charge(first.check, first.mark, first.since) if first else None)
