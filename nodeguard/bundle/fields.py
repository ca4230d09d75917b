"""Fields of a bundle's YAML map, each with the type that the format requires."""

from __future__ import annotations

from typing import Any

from nodeguard.bundle.defect import BundleError
from nodeguard.model.instant import parse_rfc3339


class Fields:
    """The fields of one YAML map, read one by one; fields that are left at the end are unknown.

    Each method returns None if the field is missing, and raises BundleError if its value is invalid.
    """

    def __init__(self, file: str, values: dict[str, Any]) -> None:
        self.file = file
        self._values = values
        self._names: list[str] = []

    def defect(self, name: str, problem: str, remedy: str) -> BundleError:
        """Return a BundleError for one field."""
        return BundleError(self.file, name, problem, remedy)

    def needed(self, name: str) -> None:
        """Raise BundleError if a field is missing."""
        if name not in self._values:
            raise self.defect(name, "is missing", "add it")

    def take(self, name: str) -> Any:
        """Return a field's raw value, None if it is missing."""
        self._names.append(name)
        if name in self._values and self._values[name] is None:
            raise self.defect(name, "is empty", "give it a value, or leave it out")
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """Return a text of one line, not empty."""
        value = self.take(name)
        if value is not None and not (isinstance(value, str) and value and value.isprintable()):
            raise self.defect(name, f"{value!r} is not a text of one line", "put the name in quotes")
        return value

    def seconds(self, name: str) -> float | None:
        """Return seconds, a number from 0."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
            raise self.defect(name, f"{value!r} is not a number of seconds", "write it like 86400.5")
        return float(value)

    def time(self, name: str) -> float | None:
        """Return the seconds since the epoch of an RFC 3339 timestamp."""
        value = self.take(name)
        if value is None:
            return None
        try:
            return parse_rfc3339(value)
        except ValueError:
            problem = f"{value!r} is not an RFC 3339 timestamp"
            raise self.defect(name, problem, "write it like 2026-11-01T12:00:00Z") from None

    def end(self) -> None:
        """Raise BundleError if the map has a field that was not read."""
        for name in self._values:
            if name not in self._names:
                raise self.defect(name, "is not a field of this file", f"use {', '.join(self._names)}")
