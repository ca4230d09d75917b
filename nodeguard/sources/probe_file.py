"""Probe files: the results of a site's own probes, in the format of docs/tasks/add-a-probe.md. Pure."""

from __future__ import annotations

import math
from typing import Annotated, Any

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType, ValidationError, convert, json

from nodeguard.config.error_messages import explain_validation_error
from nodeguard.config.errors import field_name
from nodeguard.model.finding import Health
from nodeguard.model.instant import parse_rfc3339
from nodeguard.model.target import NODE, normalize_target, target_kind

# Bytes of one file; observations in it.
SIZE_LIMIT = 1 << 16
_MAX_OBSERVATIONS = 32

# Seconds for which a file can be valid: no result of a probe is valid for ever.
_LONGEST = 7 * 86_400

# Seconds by which a file may be from the future: two reads of a clock differ while it is being set.
_SLACK = 60.0

# Characters of a field or a problem in an error message.
_SHOWN = 120

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_TIME = "write it like 2026-11-01T12:00:00Z"


class ProbeObservation(Struct, frozen=True):
    """One result of a probe. target: its target. health: the health that it reports. value: a number."""

    name: str
    target: str
    health: str | None
    value: float | None
    message: str


class ProbeFile(Struct, frozen=True):
    """The content of a probe file.

    written, until: seconds since the epoch. defects: messages on invalid parts, each with field, problem and
    remedy.
    """

    written: float = 0.0
    until: float = math.inf
    observations: tuple[ProbeObservation, ...] = ()
    defects: tuple[str, ...] = ()


class _File(Struct, forbid_unknown_fields=True):
    written_at: str
    observations: Annotated[list[Any], Meta(min_length=1, max_length=_MAX_OBSERVATIONS)]
    valid_for: Annotated[float, Meta(gt=0, le=_LONGEST)] | UnsetType = UNSET
    until: str | UnsetType = UNSET


class _Observation(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=63)]
    message: Annotated[str, Meta(min_length=1, max_length=500)]
    target: Annotated[str, Meta(min_length=1, max_length=200)] = NODE
    health: Health | UnsetType = UNSET
    value: float | UnsetType = UNSET


class _DefectError(Exception):
    def __init__(self, field: str, problem: str, remedy: str) -> None:
        # A file may contain anything, at any length; the message must stay readable.
        parts = (part if len(part) <= _SHOWN else f"{part[:_SHOWN]}…" for part in (field, problem) if part)
        super().__init__(": ".join((*parts, remedy)))


def parse_probe_file(text: str, now: float) -> ProbeFile:
    """Parse a probe file. now: seconds since the epoch.

    A file that is invalid as a whole gives one defect and no observations. One invalid observation does not
    invalidate the others.
    """
    try:
        file = _convert(_document(text), _File)
        written, until = _times(file, now)
    except _DefectError as defect:
        return ProbeFile(defects=(str(defect),))
    observations: list[ProbeObservation] = []
    defects: list[str] = []
    for index, data in enumerate(file.observations):
        try:
            observations.append(_observation(_convert(data, _Observation), observations))
        except _DefectError as defect:
            defects.append(f"observations[{index}].{defect}")
    return ProbeFile(written, until, tuple(observations), tuple(defects))


def _document(text: str) -> Any:
    if len(text.encode(errors="replace")) > SIZE_LIMIT:
        raise _DefectError("", f"is larger than {SIZE_LIMIT >> 10} KiB", "write less, or write several files")
    try:
        return json.decode(text)
    except (DecodeError, RecursionError, UnicodeEncodeError) as error:
        problem = f"is not JSON ({error})"
        raise _DefectError("", problem, "write it whole, then rename it into place") from None


def _convert(data: Any, form: Any) -> Any:
    try:
        return convert(data, form)
    except ValidationError as error:
        field, problem, remedy = explain_validation_error(str(error), form, data)
        raise _DefectError(field_name(field), problem, remedy) from None


def _times(file: _File, now: float) -> tuple[float, float]:
    written = _timestamp("written_at", file.written_at)
    if written > now + _SLACK:
        problem = f"is {format_duration(written - now)} in the future"
        raise _DefectError("written_at", problem, "write the time of writing, with its offset from UTC")
    if (file.valid_for is UNSET) == (file.until is UNSET):
        problem = "is missing" if file.until is UNSET else "is used together with until"
        raise _DefectError("valid_for", problem, "write either valid_for, in seconds, or until")
    if not isinstance(file.valid_for, UnsetType):
        return written, written + file.valid_for
    until = _timestamp("until", file.until)
    if not 0 < until - written <= _LONGEST:
        remedy = f"write a time within {_LONGEST // 86_400} days of it"
        raise _DefectError("until", "is not after written_at, or too long after it", remedy)
    return written, until


def _timestamp(field: str, text: Any) -> float:
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise _DefectError(field, f"{text!r} is not an RFC 3339 timestamp", _TIME) from None


def _observation(data: _Observation, others: list[ProbeObservation]) -> ProbeObservation:
    if not _LETTERS.issuperset(data.name) or data.name.strip("-") != data.name:
        raise _DefectError(
            "name", f"{data.name!r} is not a valid name", "use small letters, digits and hyphens"
        )
    if not data.message.isprintable():
        raise _DefectError("message", "is more than one line", "write one sentence, without tabs and colours")
    target = normalize_target(data.target)
    if not _is_valid_target(target):
        raise _DefectError(
            "target", f"{data.target!r} is not a valid target", "write it like gpu/0000:3b:00 or fs:/scratch"
        )
    if any((data.name, target) == (other.name, other.target) for other in others):
        raise _DefectError(
            "name", f"{data.name!r} reports on {target} twice", "give one of them another name"
        )
    health = None if isinstance(data.health, UnsetType) else data.health.value
    value = None if isinstance(data.value, UnsetType) else data.value
    if health is None and value is None:
        raise _DefectError("health", "is missing", "write health, or a value for a check of your own")
    if value is not None and not math.isfinite(value):
        raise _DefectError("value", f"{value} is not a finite number", "leave it out if nothing was measured")
    return ProbeObservation(data.name, target, health, value, data.message)


def _is_valid_target(target: str) -> bool:
    location = target[3:] if target.startswith("fs:") else target.partition("/")[2]
    return target == NODE or (
        location != "" and target.isprintable() and target_kind(target) not in {NODE, "probe"}
    )


def format_duration(seconds: float) -> str:
    """Return a duration in its largest unit, so that a repeated message rarely changes."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
