"""Marks of kinds that a newer version wrote: they are kept as they are, and not acted upon. Pure.

Without this, an older aggregator that runs beside a newer one, or after a rollback, would drop the whole
record of such a node, and then its marks. It is unnecessary once no version may add a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nodeguard.model.mark import Mark, MarkRecord

# Maximum bytes of what is kept: a record with it stays within what is decoded.
MAX_UNKNOWN_BYTES = 16 * 1024

_KINDS = frozenset(mark.value for mark in Mark)
_FIELDS = frozenset(MarkRecord.__struct_fields__) - {"unknown"}
_ENCODER = msgspec.json.Encoder(order="deterministic")


def decode_unknown(text: str) -> MarkRecord:
    """Return the record of a text that has what this version does not know. Raises msgspec.DecodeError for an
    invalid one, and RecursionError.
    """
    fields = msgspec.json.decode(text, type=dict[str, Any])
    unknown = {name: fields.pop(name) for name in fields.keys() - _FIELDS}
    causes = fields.get("causes")
    if isinstance(causes, list) and (others := [cause for cause in causes if _is_unknown(cause)]):
        unknown["causes"] = others
        fields["causes"] = [cause for cause in causes if cause not in others]
    if _is_unknown(fields.get("charge")):
        unknown["charge"] = fields.pop("charge")
    content = _ENCODER.encode(unknown)
    if len(content) > MAX_UNKNOWN_BYTES:
        raise msgspec.ValidationError("more of an unknown kind than a record may have")
    return replace(msgspec.convert(fields, MarkRecord), unknown=content.decode() if unknown else "")


def encode_with_unknown(record: MarkRecord) -> str:
    """Return a record as text, with what this version does not know."""
    fields = msgspec.to_builtins(replace(record, unknown=""))
    unknown = _fields(record.unknown)
    causes = [*fields.get("causes", ()), *unknown.get("causes", ())]
    merged = {**unknown, **fields, **({"causes": causes} if causes else {})}
    return _ENCODER.encode(merged).decode()


def unknown_kinds(record: MarkRecord) -> frozenset[str]:
    """Return the unknown kinds of a record's marks."""
    return frozenset(cause["mark"] for cause in _fields(record.unknown).get("causes", ()))


def _fields(unknown: str) -> dict[str, Any]:
    return msgspec.json.decode(unknown, type=dict[str, Any]) if unknown else {}


def _is_unknown(item: object) -> bool:
    """Return whether a cause or a charge is of a kind of mark that this version does not know."""
    kind = item.get("mark") if isinstance(item, Mapping) else None
    return isinstance(kind, str) and kind not in _KINDS
