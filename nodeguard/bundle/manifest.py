"""YAML files of a bundle: bundle.yaml, frame.yaml of each frame, and errors.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from nodeguard.bundle.failures import BundleError, is_system_failure
from nodeguard.model.amounts import Line, Time
from nodeguard.model.instant import precise_rfc3339
from nodeguard.model.projection import project

if TYPE_CHECKING:
    from nodeguard.config.errors import ConfigError
    from nodeguard.config.yaml_document import YamlDocument

Form = TypeVar("Form")

_Seconds = Annotated[float, Meta(ge=0, lt=1e11)]


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def mapping(data: bytes, file: str) -> dict[str, Any]:
    """Return the mapping of a YAML file of a bundle, with keys as text. Raises BundleError with the line.

    Values are text, int, float, bool, None, list or dict; see config.yaml_document for the rules.
    """
    return {str(key): value for key, value in _document(data, file).data.items()}


def _document(data: bytes, file: str) -> YamlDocument:
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415 - only a bundle's reader needs the parser
    from nodeguard.config.yaml_document import parse_yaml  # noqa: PLC0415

    try:
        document = parse_yaml(data, file)
    except ConfigError as error:
        raise _refused(error) from error
    if not isinstance(document.data, dict):
        raise BundleError(file, "", "is no mapping", "write `name: value` lines, or {} for an empty file")
    return document


def _decoded(document: YamlDocument, form: type[Form]) -> Form:
    from nodeguard.config.amounts import decode_amounts  # noqa: PLC0415 - see _document
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415
    from nodeguard.config.yaml_document import convert  # noqa: PLC0415

    try:
        for name, value in document.data.items():
            if value is None:
                raise document.error((name,), "is empty", "give it a value, or leave it out")
        return convert(document, form, decode=decode_amounts)
    except ConfigError as error:
        raise _refused(error) from error


def _refused(error: ConfigError) -> BundleError:
    line = f"line {error.line}" if error.line else ""
    return BundleError(error.file, ": ".join(filter(None, (line, error.field))), error.problem, error.remedy)


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

    hostname: Line
    boot_id: Line
    recorded_at: Time
    uptime_s: _Seconds
    platform: Line = ""
    instance_type: Line = ""
    sources: dict[str, Presence] = {}


class _ManifestFile(Manifest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int


class FrameManifest(Struct, frozen=True, forbid_unknown_fields=True):
    """frame.yaml: the paths that a frame removes, and its clock; None for a value that does not change.

    removed: paths of the machine, each with everything below it. recorded_at: seconds since the epoch.
    """

    removed: tuple[str, ...] = ()
    boot_id: Line | None = None
    recorded_at: Time | None = None
    uptime_s: _Seconds | None = None


def read_manifest(data: bytes, file: str) -> Manifest:
    """Return the content of bundle.yaml. Raises BundleError; file: its path, for the message."""
    document = _document(data, file)
    # First: the other fields depend on the format.
    number = document.data.get("format", FORMAT)
    if number is not None and (type(number) is not int or number != FORMAT):
        problem = f"{number!r} is unknown: this version reads {FORMAT}"
        raise _refused(document.error(("format",), problem, "use a newer nodeguard"))
    return project(Manifest, _decoded(document, _ManifestFile))


def read_frame_manifest(data: bytes, file: str) -> FrameManifest:
    """Return the content of frame.yaml. Raises BundleError; file: its path, for the message."""
    manifest = _decoded(_document(data, file), FrameManifest)
    removed = (machine_path(path, file, f"removed[{at}]") for at, path in enumerate(manifest.removed))
    return replace(manifest, removed=tuple(removed))


def machine_path(path: str, file: str, field: str) -> str:
    """Return a path of a bundle's YAML as an absolute path of the recorded machine.

    `sys/class/net` and `/sys/class/net/` both give `/sys/class/net`. Raises BundleError for a path that is
    not below the root.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
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
