"""The fields of a bundle's YAML map, each of the kind that the format asks for."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from nodeguard.bundle.defect import BundleError

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)


def moment(text: Any) -> float:
    """Seconds since the epoch of a moment that is written as RFC 3339 says. Raises ValueError."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(text.upper()).timestamp()


class Fields:
    """The fields of one YAML map, taken one by one; what is left at the end is unknown.

    Each taker gives None where the field is not there, and raises BundleError where it is something else.
    """

    def __init__(self, file: str, values: dict[str, Any]) -> None:
        self.file = file
        self._values = values
        self._known: list[str] = []

    def defect(self, name: str, problem: str, remedy: str) -> BundleError:
        """A BundleError for one field."""
        return BundleError(self.file, name, problem, remedy)

    def needed(self, name: str) -> None:
        """Refuse the map where a field is not there."""
        if name not in self._values:
            raise self.defect(name, "is missing", "add it")

    def take(self, name: str) -> Any:
        """A field's raw value, None where it is not there."""
        self._known.append(name)
        if name in self._values and self._values[name] is None:
            raise self.defect(name, "is empty", "give it a value, or leave it out")
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """A text of one line, not empty."""
        value = self.take(name)
        if value is not None and not (isinstance(value, str) and value and value.isprintable()):
            raise self.defect(name, f"{value!r} is no text of one line", "put the name in quotes")
        return value

    def seconds(self, name: str) -> float | None:
        """Seconds, a number from 0 up."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
            raise self.defect(name, f"{value!r} is no number of seconds", "write it like 86400.5")
        return float(value)

    def time(self, name: str) -> float | None:
        """Seconds since the epoch, of a moment that is written as RFC 3339 says."""
        value = self.take(name)
        if value is None:
            return None
        try:
            return moment(value)
        except ValueError:
            problem = f"{value!r} is no RFC 3339 time"
            raise self.defect(name, problem, "write it like 2026-11-01T12:00:00Z") from None

    def end(self) -> None:
        """Refuse the map where it has a field that nobody took."""
        for name in self._values:
            if name not in self._known:
                raise self.defect(name, "is no field of this file", f"use {', '.join(self._known)}")
