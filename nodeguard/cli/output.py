"""Structured output of the commands: JSON and YAML of msgspec structs."""

from __future__ import annotations

from typing import Any

import msgspec


def to_json(document: Any) -> str:
    """Return a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def to_yaml(document: Any) -> str:
    """Return a document as YAML, with the fields of its JSON."""
    import yaml  # noqa: PLC0415 - for one format

    data = msgspec.json.decode(msgspec.json.encode(document))
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")
