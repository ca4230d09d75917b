"""Field selectors with the grammar of kubectl, such as `health=fatal,pool!=a`, for items of a list. Pure."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from nodeguard.cli.usage import did_you_mean

_TERM = re.compile(r"\s*(?P<field>[^=!\s]+)\s*(?P<operator>==|!=|=)\s*(?P<value>.*?)\s*")


class FieldTerm(NamedTuple):
    """A condition on one field. negated: whether items with the value are left out."""

    field: str
    value: str
    negated: bool

    def matches(self, item: Any) -> bool:
        """Return whether an item fulfils it: the field has the value, or is a list with the value in it."""
        field = msgspec.to_builtins(getattr(item, self.field))
        values = field if isinstance(field, (list, tuple)) else [field]
        return (self.value in map(_text, values)) != self.negated


def parse_field_selector(fields: Sequence[str], text: str) -> tuple[FieldTerm, ...]:
    """Return the conditions of a selector. fields: those of an item. Raises ArgumentTypeError."""
    terms = []
    for part in text.split(",") if text.strip() else ():
        match = _TERM.fullmatch(part)
        if match is None:
            raise ArgumentTypeError(f"'{part}' is no condition: write it like health=fatal or health!=ok")
        if match["field"] not in fields:
            hint = did_you_mean(match["field"], fields)
            raise ArgumentTypeError(
                f"field '{match['field']}' is unknown: {hint}expected one of {', '.join(fields)}"
            )
        terms.append(FieldTerm(match["field"], match["value"], match["operator"] == "!="))
    return tuple(terms)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
