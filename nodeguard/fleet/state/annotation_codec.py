"""Codec of mark records in the annotation of a Node or device rule. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from nodeguard.model.mark import Charge, MarkRecord

# Maximum bytes of an annotation that is decoded: all annotations of an object together may have 256 KiB.
MAX_READ_BYTES = 64 * 1024

# Maximum bytes of a record with its causes; the rest of a record is small.
MAX_CAUSES_BYTES = 32 * 1024

_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(MarkRecord)


def encode_record(record: MarkRecord) -> str:
    """Return a record as text; empty for an empty record."""
    return "" if record == MarkRecord() else _ENCODER.encode(record).decode()


def decode_record(text: str) -> MarkRecord | None:
    """Return a record from its text; None if it is invalid, as after an edit by hand. A record that is
    returned has a charge only if it has a cause, and always then.
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
    first = min(record.causes, key=lambda cause: cause.since, default=None)
    return replace(record, charge=Charge(first.check, first.mark, first.since) if first else None)
