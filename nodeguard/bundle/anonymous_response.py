"""What a cloud's metadata service answered, with every identity in it replaced."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeguard.bundle.anonymise import Anonymiser

# What the cloud calls a machine: the whole answer to a request of this path, and a field of Azure's events.
_NAME_PATH = "/compute/name?"
_NAMES = frozenset(("Resources", "EventId"))


def anonymous_response(call: str, answer: dict[str, Any], new: Anonymiser) -> dict[str, Any]:
    """An answer of calls.json; a machine has the same new name in all of them."""
    body = answer.get("body", "")
    if not body:
        return answer
    if _NAME_PATH in call:
        return {**answer, "body": new.words(body)}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {**answer, "body": new.text(body)}
    return {**answer, "body": msgspec.json.encode(_value(value, new, is_name=False)).decode()}


def _value(value: Any, new: Anonymiser, *, is_name: bool) -> Any:
    if isinstance(value, str):
        return new.words(value) if is_name else new.text(value)
    if isinstance(value, list):
        return [_value(one, new, is_name=is_name) for one in value]
    if isinstance(value, dict):
        return {field: _value(one, new, is_name=is_name or field in _NAMES) for field, one in value.items()}
    return value
