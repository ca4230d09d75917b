"""The values in which two recorded policies differ, as lines for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_NOT_SET = "(not set)"


def policy_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each value that differs, by path: `budget.fleet: 0.05 → 0.1`.

    before, after: JSON of each value by its path in the policy file. Of a list there is a line for each
    entry that was removed or added, and one if the order of its other entries changed: `modeRules: added
    {check: gpu-lost, mode: enforce}`, `modeRules: another order`.
    """
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return tuple(f"{path}: {text}" for path in paths for text in _changes(before.get(path), after.get(path)))


def _changes(before: str | None, after: str | None) -> Iterator[str]:
    old, new = _decode(before), _decode(after)
    if isinstance(old, list) and isinstance(new, list):
        yield from _list_changes(old, new)
    else:
        yield f"{_NOT_SET if before is None else _text(old)} → {_NOT_SET if after is None else _text(new)}"


def _list_changes(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """Yield removed and added entries, once each time, and whether the other ones have another order."""
    old_keys, new_keys = [_key(entry) for entry in old], [_key(entry) for entry in new]
    common = Counter(old_keys) & Counter(new_keys)
    yield from (f"removed {_text(entry)}" for entry in _surplus(old, old_keys, common))
    yield from (f"added {_text(entry)}" for entry in _surplus(new, new_keys, common))
    if _common_subsequence(old_keys, new_keys) < common.total():
        yield "another order"


def _surplus(entries: Sequence[Any], keys: Sequence[bytes], common: Counter[bytes]) -> Iterator[Any]:
    """Yield the entries that a list has more often than the other list."""
    remaining = common.copy()
    for entry, key in zip(entries, keys, strict=True):
        if remaining[key] > 0:
            remaining[key] -= 1
        else:
            yield entry


def _common_subsequence(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """Return how many entries two lists have in the same order. Recorded lists are short."""
    lengths = [0] * (len(new) + 1)
    for old_key in old:
        diagonal = 0
        for index, new_key in enumerate(new, 1):
            above = lengths[index]
            lengths[index] = diagonal + 1 if old_key == new_key else max(above, lengths[index - 1])
            diagonal = above
    return lengths[-1]


def _key(entry: Any) -> bytes:
    return msgspec.json.encode(entry, order="deterministic")


def _decode(text: str | None) -> Any:
    """Return a recorded value; a text that is no JSON, such as the digest of a long list, as it is."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(value: Any) -> str:
    """Return a value as a policy file has it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_text(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
