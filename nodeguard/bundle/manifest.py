"""Manifests: bundle.yaml of a bundle, and frame.yaml of each frame."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.document import mapping, quoted
from nodeguard.bundle.fields import Fields
from nodeguard.model.instant import precise_rfc3339

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
