"""Files in which a site's own probes say what they found: docs/observations.md describes the format. Pure."""

from __future__ import annotations

import math
from typing import Annotated, Any

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType, ValidationError, convert, json

from nodeguard.bundle.fields import moment
from nodeguard.config.error_messages import explain_validation_error, field_name
from nodeguard.model.finding import Health
from nodeguard.model.target import NODE, normalize_target, target_kind

# Bytes of one file; observations in it.
SIZE_LIMIT = 1 << 16
_MOST = 32

# Seconds for which a file can be valid at most: nothing that a probe once said stands for ever.
_LONGEST = 7 * 86_400

# Seconds that a file may seem to come from the future: two readings of a clock that is being set differ.
_SLACK = 60.0

# Letters told of a field or of what is wrong with it.
_TOLD = 120

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_TIME = "write it like 2026-11-01T12:00:00Z"


class ProbeObservation(Struct, frozen=True):
    """One observation of a probe. slot: what it speaks of. health: what it claims. value: a figure."""

    name: str
    slot: str
    health: str | None
    value: float | None
    message: str


class ProbeFile(Struct, frozen=True):
    """What a file says.

    written, until: seconds since the epoch. defects: what in it does not count, each with the field, what is
    wrong with it and the remedy.
    """

    written: float = 0.0
    until: float = math.inf
    observations: tuple[ProbeObservation, ...] = ()
    defects: tuple[str, ...] = ()


class _File(Struct, forbid_unknown_fields=True):
    written_at: str
    observations: Annotated[list[Any], Meta(min_length=1, max_length=_MOST)]
    valid_for: Annotated[float, Meta(gt=0, le=_LONGEST)] | UnsetType = UNSET
    until: str | UnsetType = UNSET


class _Observation(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=63)]
    message: Annotated[str, Meta(min_length=1, max_length=500)]
    slot: Annotated[str, Meta(min_length=1, max_length=200)] = NODE
    health: Health | UnsetType = UNSET
    value: float | UnsetType = UNSET


class _DefectError(Exception):
    def __init__(self, field: str, problem: str, remedy: str) -> None:
        # A file may hold anything, at any length; what is told of it should fit on a page.
        said = (part if len(part) <= _TOLD else f"{part[:_TOLD]}…" for part in (field, problem) if part)
        super().__init__(": ".join((*said, remedy)))


def parse_probe_file(text: str, now: float) -> ProbeFile:
    """What a file of probes says at a moment, in seconds since the epoch.

    A file that cannot be believed as a whole has one defect and says nothing; an observation that cannot does
    not take the others with it.
    """
    try:
        file = _form(_document(text), _File)
        written, until = _times(file, now)
    except _DefectError as defect:
        return ProbeFile(defects=(str(defect),))
    said: list[ProbeObservation] = []
    defects: list[str] = []
    for at, one in enumerate(file.observations):
        try:
            said.append(_said(_form(one, _Observation), said))
        except _DefectError as defect:
            defects.append(f"observations[{at}].{defect}")
    return ProbeFile(written, until, tuple(said), tuple(defects))


def _document(text: str) -> Any:
    if len(text.encode(errors="replace")) > SIZE_LIMIT:
        raise _DefectError("", f"is larger than {SIZE_LIMIT >> 10} KiB", "say less, or write several files")
    try:
        return json.decode(text)
    except (DecodeError, RecursionError, UnicodeEncodeError) as error:
        problem = f"is no JSON ({error})"
        raise _DefectError("", problem, "write it whole, then rename it into place") from None


def _form(data: Any, form: Any) -> Any:
    try:
        return convert(data, form)
    except ValidationError as error:
        place, problem, remedy = explain_validation_error(str(error), form, data)
        raise _DefectError(field_name(place), problem, remedy) from None


def _times(file: _File, now: float) -> tuple[float, float]:
    written = _moment("written_at", file.written_at)
    if written > now + _SLACK:
        problem = f"is {format_duration(written - now)} in the future"
        raise _DefectError("written_at", problem, "write the moment of writing, with its offset from UTC")
    if (file.valid_for is UNSET) == (file.until is UNSET):
        problem = "is missing" if file.until is UNSET else "stands beside until"
        raise _DefectError("valid_for", problem, "say either valid_for, in seconds, or until")
    if not isinstance(file.valid_for, UnsetType):
        return written, written + file.valid_for
    until = _moment("until", file.until)
    if not 0 < until - written <= _LONGEST:
        remedy = f"name a moment within {_LONGEST // 86_400} days of it"
        raise _DefectError("until", "is not after written_at, or too long after it", remedy)
    return written, until


def _moment(field: str, text: Any) -> float:
    try:
        return moment(text)
    except (ValueError, OverflowError):
        raise _DefectError(field, f"{text!r} is no RFC 3339 time", _TIME) from None


def _said(one: _Observation, others: list[ProbeObservation]) -> ProbeObservation:
    if not _LETTERS.issuperset(one.name) or one.name.strip("-") != one.name:
        raise _DefectError("name", f"{one.name!r} is no name", "use small letters, digits and hyphens")
    if not one.message.isprintable():
        raise _DefectError("message", "is more than one line", "write one sentence, without tabs and colours")
    slot = normalize_target(one.slot)
    if not _is_slot(slot):
        raise _DefectError("slot", f"{one.slot!r} is no slot", "write it like gpu/0000:3b:00 or fs:/scratch")
    if any((one.name, slot) == (other.name, other.slot) for other in others):
        raise _DefectError("name", f"{one.name!r} speaks of {slot} twice", "give one of them another name")
    health = None if isinstance(one.health, UnsetType) else one.health.value
    value = None if isinstance(one.value, UnsetType) else one.value
    if health is None and value is None:
        raise _DefectError("health", "is missing", "say health, or a value for a check of your own")
    if value is not None and not math.isfinite(value):
        raise _DefectError("value", f"{value} is no finite number", "leave it out where nothing was measured")
    return ProbeObservation(one.name, slot, health, value, one.message)


def _is_slot(slot: str) -> bool:
    place = slot[3:] if slot.startswith("fs:") else slot.partition("/")[2]
    return slot == NODE or (place != "" and slot.isprintable() and target_kind(slot) not in {NODE, "probe"})


def format_duration(seconds: float) -> str:
    """A length of time in its largest unit: what is said again in each round should rarely read otherwise."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
