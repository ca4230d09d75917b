"""The fields of an incident's status that the served CustomResourceDefinition does not store.

A cluster may serve the definition of an older version: the API server drops a field that it does not define,
and refuses a value that it does not permit. Without this record, the incident writer would write both for
ever.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodeguard.kube.incident_object import IncidentStatus
from nodeguard.kube.incident_schema import REMEDY

logger = logging.getLogger(__name__)

_STATUS = "status."
_INDEX = re.compile(r"\[\d+\]")

# A path below the status, without indexes of lists: `symptoms[].health`; and a value there.
_Refusal = tuple[str, Any]


class StoredFields:
    """Records what the server drops and refuses, from its responses to writes.

    A field is dropped from all incidents, until a response has it. A value is refused in one incident.
    """

    def __init__(self) -> None:
        self._dropped: set[str] = set()
        self._refused: dict[str, list[_Refusal]] = {}  # by name of the incident
        self._logged: set[str] = set()

    def to_send(self, name: str, status: IncidentStatus) -> dict[str, Any]:
        """Return the status of an incident without the values that the server refused for it."""
        content: dict[str, Any] = msgspec.to_builtins(status)
        for path, value in self._refused.get(name, ()):
            _remove(content, path.split("."), value)
        return content

    def is_stored(self, name: str, observed: IncidentStatus, desired: IncidentStatus) -> bool:
        """Return whether an observed status has all that the server stores of a desired one."""
        if observed == desired:
            return True
        if not self._dropped and name not in self._refused:
            return False
        sent, stored = self.to_send(name, desired), msgspec.to_builtins(observed)
        return not any(path not in self._dropped for path, _ in _differences(sent, stored))

    def record_response(self, sent: Mapping[str, Any], response: IncidentStatus) -> None:
        """Record the response to a write: a field that comes back without its value is not stored."""
        stored = msgspec.to_builtins(response)
        dropped = {path for path, value in _differences(sent, stored) if not value}
        for path in sorted(dropped - self._dropped):
            if self._is_new(path):
                logger.warning(
                    "the cluster does not store a field of NodeIncidents",
                    extra={"field": f"{_STATUS}{path}", "remedy": REMEDY},
                )
        restored = {path for path in self._dropped - dropped if _has_value(sent, path.split("."))}
        self._dropped = (self._dropped | dropped) - restored

    def record_refusal(self, name: str, sent: Mapping[str, Any], fields: tuple[str, ...]) -> bool:
        """Record that the server refused a write because of some fields. Returns whether a retry may succeed.

        fields: as the server names them, such as `status.symptoms[0].health`.
        """
        found = False
        for field in fields:
            path = field.removeprefix(_STATUS)
            value = _value(sent, path)
            while value is None and "." in path:
                # The field is required: the smallest part with it that can be left out is above it.
                path = path.rpartition(".")[0]
                value = _value(sent, path)
            if field.startswith(_STATUS) and value is not None:
                path = _INDEX.sub("[]", path)
                self._refused.setdefault(name, []).append((path, value))
                if self._is_new(path):
                    logger.warning(
                        "the cluster refuses a value of NodeIncidents",
                        extra={"field": f"{_STATUS}{path}", "remedy": REMEDY},
                    )
                found = True
        return found

    def forget(self, name: str) -> None:
        """Forget the refusals for an incident: it changed or is gone."""
        self._refused.pop(name, None)

    def _is_new(self, path: str) -> bool:
        """Return whether a field is not logged yet, and count it as logged."""
        is_new = path not in self._logged
        self._logged.add(path)
        return is_new


def _differences(sent: Any, stored: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths of sent values that are not stored, with the values that are stored instead."""
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        for key in sent.keys() | stored.keys():
            yield from _differences(sent.get(key), stored.get(key), f"{path}.{key}" if path else key)
    elif isinstance(sent, list | tuple) and isinstance(stored, list | tuple) and len(sent) == len(stored):
        for item, stored_item in zip(sent, stored, strict=True):
            yield from _differences(item, stored_item, f"{path}[]")
    elif (sent or None) != (stored or None):
        yield path, stored


def _value(content: Any, path: str) -> Any:
    """Return the value at a path with indexes of lists; None if there is none."""
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(content, Mapping):
            content = content.get(step)
        elif isinstance(content, list | tuple) and step.isdecimal() and int(step) < len(content):
            content = content[int(step)]
        else:
            return None
    return content


def _has_value(content: Any, steps: list[str]) -> bool:
    """Return whether there is a value other than an empty one at a path without indexes."""
    if not steps:
        return bool(content)
    key = steps[0].removesuffix("[]")
    below = content.get(key) if isinstance(content, Mapping) else None
    if steps[0].endswith("[]"):
        return any(_has_value(item, steps[1:]) for item in below or ())
    return _has_value(below, steps[1:])


def _remove(content: dict[str, Any], steps: list[str], value: Any, *, in_list: bool = False) -> None:
    """Remove a value at a path without indexes, wherever it is equal."""
    key = steps[0].removesuffix("[]")
    below, is_last = content.get(key), len(steps) == 1
    if steps[0].endswith("[]"):
        content[key] = [item for item in below or () if not (is_last and item == value)]
        for item in () if is_last else content[key]:
            _remove(item, steps[1:], value, in_list=True)
    elif not is_last and isinstance(below, dict):
        _remove(below, steps[1:], value, in_list=in_list)
    elif is_last and below == value and in_list:
        del content[key]
    elif is_last and below == value:
        # In a merge patch, this removes a value from before. A list is replaced as a whole.
        content[key] = None
