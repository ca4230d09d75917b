"""The values in which two recorded policies differ, as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_NONE = "none"


def policy_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each value that differs, by path: `budget.fleet: 0.05 → 0.1`.

    before, after: JSON of each value by its path in the policy file. Of a list there is a line for each
    entry that was removed or added: `modeRules: added {check: gpu-lost, mode: enforce}`.
    """
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return tuple(f"{path}: {text}" for path in paths for text in _changes(before.get(path), after.get(path)))


def _changes(before: str | None, after: str | None) -> Iterator[str]:
    old, new = _decode(before), _decode(after)
    if not (isinstance(old, list) and isinstance(new, list)):
        yield f"{_text(old)} → {_text(new)}"
        return
    removed = [f"removed {_text(entry)}" for entry in old if entry not in new]
    added = [f"added {_text(entry)}" for entry in new if entry not in old]
    yield from (*removed, *added) if removed or added else ("another order",)


def _decode(text: str | None) -> Any:
    """Return a recorded value; a text that is no JSON, such as the digest of a long list, as it is."""
    try:
        return _NONE if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(value: Any) -> str:
    """Return a value as a policy file has it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_text(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
