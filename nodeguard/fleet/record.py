"""Records as the annotation on a Node or device holds them. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from nodeguard.model.mark import Charge, Record

# Bytes of an annotation that is read at all: all annotations of an object together may have 256 KiB.
LIMIT = 64 * 1024

# Bytes up to which causes are added to a record; what else it holds has room beside them.
ROOM = 32 * 1024

_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Record)


def written(record: Record) -> str:
    """A record as text; empty where there is nothing to remember."""
    return "" if record == Record() else _ENCODER.encode(record).decode()


def read(text: str) -> Record | None:
    """A record from its text; None where it is none, as somebody has edited it. Whatever they did, there is a
    charge just where there is a cause.
    """
    if not text:
        return Record()
    if len(text) > LIMIT:
        return None
    try:
        record = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if bool(record.causes) == (record.charge is not None):
        return record
    first = min(record.causes, key=lambda one: one.since, default=None)
    return replace(record, charge=Charge(first.check, first.mark, first.since) if first else None)
