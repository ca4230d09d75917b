"""YAML files of a bundle: bundle.yaml, frame.yaml of each frame, and errors.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from nodeguard.bundle.failures import BundleError, is_system_failure
from nodeguard.model.instant import parse_rfc3339, precise_rfc3339


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


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def mapping(data: bytes, file: str) -> dict[str, Any]:
    """Return the mapping of a YAML file of a bundle, with keys as text. Raises BundleError with the line.

    Values are text, int, float, bool, None, list or dict; see config.yaml_document for the rules.
    """
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415 - only a bundle's reader needs the parser
    from nodeguard.config.yaml_document import parse_yaml  # noqa: PLC0415

    try:
        document = parse_yaml(data, file)
    except ConfigError as error:
        line = f"line {error.line}" if error.line else ""
        field = f"{error.field}: " if error.field else ""
        raise BundleError(file, line, f"{field}{error.problem}", error.remedy) from error
    if not isinstance(document.data, dict):
        raise BundleError(file, "", "is no mapping", "write `name: value` lines, or {} for an empty file")
    return {str(key): value for key, value in document.data.items()}


def quoted(text: str) -> str:
    """Return text as a YAML scalar in double quotes, on one line. Surrogates become `?`."""
    from msgspec import json  # noqa: PLC0415 - only a bundle's writer needs it

    scalar = json.encode(text.encode(errors="replace").decode()).decode()
    return _UNPRINTABLE.sub(lambda letter: f"\\u{ord(letter[0]):04x}", scalar)


FORMAT = 1

Presence = Literal["recorded", "not-recorded"]


class Manifest(Struct, frozen=True):
    """bundle.yaml.

    hostname, boot_id: of the recorded machine. recorded_at: time 0 of the recording, in seconds since the
    epoch.
    uptime_s: seconds since boot at that time. platform: id of a platform file; instance_type: the cloud's
    machine type; both empty if unknown. sources: whether a source was recorded, by name.
    """

    hostname: str
    boot_id: str
    recorded_at: float
    uptime_s: float
    platform: str = ""
    instance_type: str = ""
    sources: dict[str, Presence] = {}


class FrameManifest(Struct, frozen=True):
    """frame.yaml: the paths that a frame removes, and its clock; None for a value that does not change.

    removed: paths of the machine, each with everything below it. recorded_at: seconds since the epoch.
    """

    removed: tuple[str, ...] = ()
    boot_id: str | None = None
    recorded_at: float | None = None
    uptime_s: float | None = None


def read_manifest(data: bytes, file: str) -> Manifest:
    """Return the content of bundle.yaml. Raises BundleError; file: its path, for the message."""
    fields = Fields(file, mapping(data, file))
    # First: the other fields depend on the format.
    fields.needed("format")
    number = fields.take("format")
    if type(number) is not int or number != FORMAT:
        problem = f"{number!r} is unknown: this version reads {FORMAT}"
        raise fields.defect("format", problem, "use a newer nodeguard")
    for name in ("hostname", "boot_id", "recorded_at", "uptime_s"):
        fields.needed(name)
    manifest = Manifest(
        hostname=fields.text("hostname") or "",
        boot_id=fields.text("boot_id") or "",
        recorded_at=fields.time("recorded_at") or 0.0,
        uptime_s=fields.seconds("uptime_s") or 0.0,
        platform=fields.text("platform") or "",
        instance_type=fields.text("instance_type") or "",
        sources=_sources(fields),
    )
    fields.end()
    return manifest


def _sources(fields: Fields) -> dict[str, Presence]:
    sources: Any = fields.take("sources")
    if sources is None:
        return {}
    remedy = "write `source: recorded` or `source: not-recorded`"
    if not isinstance(sources, dict):
        raise fields.defect("sources", "is not a map", remedy)
    for source, presence in sources.items():
        if presence not in ("recorded", "not-recorded"):
            raise fields.defect(f"sources.{source}", f"{presence!r} is not valid", remedy)
    return sources


def read_frame_manifest(data: bytes, file: str) -> FrameManifest:
    """Return the content of frame.yaml. Raises BundleError; file: its path, for the message."""
    fields = Fields(file, mapping(data, file))
    removed: Any = fields.take("removed")
    if removed is None:
        removed = []
    if not isinstance(removed, list):
        raise fields.defect("removed", "is not a list", "write the paths as a list")
    manifest = FrameManifest(
        removed=tuple(machine_path(path, file, f"removed[{index}]") for index, path in enumerate(removed)),
        boot_id=fields.text("boot_id"),
        recorded_at=fields.time("recorded_at"),
        uptime_s=fields.seconds("uptime_s"),
    )
    fields.end()
    return manifest


def machine_path(path: object, file: str, field: str) -> str:
    """Return a path of a bundle's YAML as an absolute path of the recorded machine.

    `sys/class/net` and `/sys/class/net/` both give `/sys/class/net`. Raises BundleError for a path that is
    not below the root.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")] if isinstance(path, str) else []
    if not parts or ".." in parts:
        raise BundleError(
            file, field, f"{path!r} is not a path of the machine", "write it like sys/class/net/eth0"
        )
    return "/" + "/".join(parts)


def write_manifest(manifest: Manifest) -> str:
    """Return the text of bundle.yaml."""
    lines = [f"format: {FORMAT}", f"hostname: {quoted(manifest.hostname)}", *_instant(manifest)]
    for name, value in (("platform", manifest.platform), ("instance_type", manifest.instance_type)):
        if value:
            lines.append(f"{name}: {quoted(value)}")
    if manifest.sources:
        lines.append("sources:")
        lines += [f"  {quoted(source)}: {presence}" for source, presence in manifest.sources.items()]
    return "\n".join([*lines, ""])


def write_frame_manifest(frame: FrameManifest) -> str:
    """Return the text of frame.yaml."""
    lines = _instant(frame)
    if frame.removed:
        lines += ["removed:", *(f"  - {quoted(path.lstrip('/'))}" for path in frame.removed)]
    return "\n".join([*lines, ""]) if lines else "{}\n"


def _instant(manifest: Manifest | FrameManifest) -> list[str]:
    lines = []
    if manifest.boot_id is not None:
        lines.append(f"boot_id: {quoted(manifest.boot_id)}")
    if manifest.recorded_at is not None:
        lines.append(f"recorded_at: {quoted(precise_rfc3339(manifest.recorded_at))}")
    if manifest.uptime_s is not None:
        lines.append(f"uptime_s: {manifest.uptime_s}")
    return lines


def read_errors(data: bytes, file: str, *, base: bool) -> dict[str, str | None]:
    """Return the content of errors.yaml: an errno name, `stall` or `hang` by absolute path.

    None removes an entry; only a frame may do that. Raises BundleError.
    """
    errors: dict[str, str | None] = {}
    for path, failure in mapping(data, file).items():
        at = machine_path(path, file, path)
        if at in errors:
            raise BundleError(file, path, "is there twice", "keep one")
        if not (is_system_failure(failure) or (failure is None and not base)):
            raise BundleError(
                file, path, f"{failure!r} is not a known failure", "write an errno name, stall or hang"
            )
        errors[at] = failure
    return errors


def write_errors(errors: Mapping[str, str | None]) -> str:
    """Return the text of errors.yaml."""
    return "".join(f"{quoted(path.lstrip('/'))}: {failure or 'null'}\n" for path, failure in errors.items())
