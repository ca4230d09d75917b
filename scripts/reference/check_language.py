"""Reference page of the check language: a table for each struct, from the structs' docstrings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scripts.reference.markdown import Lines, code, page, table
from scripts.reference.schemas import check_schema

_INTRODUCTION = """\
For those who [write a check](../tasks/write-a-check.md). Editors can use the [JSON
Schema](check.schema.json). A condition that YAML cannot express uses a derived signal, a tested function in
the source code."""

_CONDITION = """\
A condition has exactly one of the keys `signal`, `event`, `any` and `all`. One with an unknown
[signal](signals.md) is unknown. Two exceptions exist: `any` with a true part is true, and `all` with a
false part is false. `for`, `over` and `apart` are at most `90d`: events and counters belong to one boot. A
number is at most 2^64, the largest reading."""

_FAULT_CLASS = """\
A fault class groups checks that one kind of shared hardware or software can cause. Only fault classes vote
in the diagnosis of [failure domains](../concepts/failure-domains.md)."""

_EXAMPLES = """\
## Examples

A threshold for five minutes, a counter that rises while the port is up, and an Xid in this boot:

```yaml
when: {signal: gpu.temperature, at_least: 80, for: 5m}
```

```yaml
when:
  all:
    - {signal: port.state, is: active, evidence: false}
    - {signal: port.symbol_error, increases_by: 100, over: 1h}
```

```yaml
when: {event: gpu.xid.ecc, where: {verdict: [fatal]}}
```"""

# The structs of the schema with the titles of their sections, and the text before the table.
_SECTIONS = {
    "CheckFileSchema": ("File", ""),
    "CheckSchema": ("Check", ""),
    "ConditionSchema": ("Condition", _CONDITION),
    "ReferenceSchema": (
        "Reference",
        "A comparison may have, instead of a constant, an object with one of these keys:",
    ),
    "FaultClass": ("Fault class", _FAULT_CLASS),
}


def check_language() -> str:
    """Return the page: all keys of a file of checks with their meaning."""
    structs = json.loads(check_schema())["$defs"]
    lines = [_INTRODUCTION, ""]
    for name, (title, text) in _SECTIONS.items():
        lines += [f"## {title}", "", *([text, ""] if text else ()), *_keys(structs[name], structs)]
    return page("Check language", *lines, _EXAMPLES)


def _keys(struct: dict[str, Any], structs: dict[str, Any]) -> Lines:
    """Yield the table of a struct, with a column of the required keys if it has any."""
    required = struct.get("required", ())
    header = ("key", "required", "meaning") if required else ("key", "meaning")
    rows = list(_rows(struct, structs))
    yield from table(header, rows if required else [(key, meaning) for key, _, meaning in rows])


def _rows(
    struct: dict[str, Any], structs: dict[str, Any], parent: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of a struct, each followed by those of an object that has no section of its own."""
    for key, content in struct["properties"].items():
        parts = list(_parts(content, structs))
        values = dict.fromkeys(
            value for part in parts for value in part.get("enum", ()) if isinstance(value, str)
        )
        listed = f" Values: {', '.join(map(code, values))}." if values else ""
        required = "yes" if key in struct.get("required", ()) else "no"
        yield code(parent + key), required, content.get("description", "") + listed
        for part in parts:
            if part.get("title") not in _SECTIONS and "properties" in part:
                yield from _rows(part, structs, f"{parent}{key}.")


def _parts(content: dict[str, Any], structs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of the values that a key may have, or that its list may contain."""
    match content:
        case {"$ref": reference}:
            yield from _parts(structs[reference.rpartition("/")[2]], structs)
        case {"anyOf": parts}:
            for part in parts:
                yield from _parts(part, structs)
        case {"type": "array", "items": items}:
            yield from _parts(items, structs)
        case _:
            yield content
