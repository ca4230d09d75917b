"""What one layer of a bundle says, base or frame, before it becomes files."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.calls import HTTP, AnswerChanges
from nodeguard.bundle.errors import write_errors
from nodeguard.bundle.layer import Directory, Entry, Link
from nodeguard.bundle.manifest import FrameManifest, Manifest, write_frame_manifest, write_manifest

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


class LayerContent(Struct, frozen=True):
    """A layer. tree: its files, a leaf being a text; the others as the files of their name hold them.

    None where the layer has no such file.
    """

    manifest: Manifest | FrameManifest
    tree: Directory
    errors: dict[str, str | None]
    calls: AnswerChanges
    nvml: dict[str, Any] | None
    kmsg: tuple[str, ...] | None


def layer_files(content: LayerContent) -> dict[str, str | Link | None]:
    """What a layer consists of, by path below its directory: a file's text, a link, None for a directory.

    A directory stands there only where nothing is in it.
    """
    found: dict[str, str | Link | None] = {}
    if isinstance(content.manifest, Manifest):
        found["bundle.yaml"] = write_manifest(content.manifest)
    else:
        found["frame.yaml"] = write_frame_manifest(content.manifest)
    if content.errors:
        found["errors.yaml"] = write_errors(content.errors)
    if content.calls:
        found["calls.json"] = _json(content.calls)
    if content.nvml is not None:
        found["nvml.json"] = _json(content.nvml)
    if content.kmsg is not None:
        found["kmsg"] = "".join(f"{record}\n" for record in content.kmsg)
    _add(found, "", content.tree)
    return found


def _add(found: dict[str, str | Link | None], above: str, directory: Directory) -> None:
    for name, entry in directory.items():
        path = f"{above}{name}"
        if isinstance(entry, dict):
            _add(found, f"{path}/", entry)
            if not entry:
                found[path] = None
        else:
            assert isinstance(entry, str | Link)
            found[path] = entry


def _json(value: Any) -> str:
    """JSON that a person can read and git can compare."""
    return json.format(json.encode(value), indent=1).decode() + "\n"


def anonymise_layer(content: LayerContent, new: Anonymiser) -> LayerContent:
    """The same with every identity in it replaced."""
    # First, because it tells the serial numbers that other files may hold unnamed.
    nvml = _nvml(content.nvml, new)
    manifest = content.manifest
    if isinstance(manifest, Manifest):
        manifest = new.manifest(manifest)
    else:
        boot_id = manifest.boot_id and new.boot_id(manifest.boot_id)
        manifest = replace(manifest, boot_id=boot_id, removed=tuple(map(new.path, manifest.removed)))
    return LayerContent(
        manifest=manifest,
        tree=_tree(content.tree, "", new),
        errors={new.path(path): word for path, word in content.errors.items()},
        calls=dict(_call(call, answer, new) for call, answer in content.calls.items()),
        nvml=nvml,
        kmsg=None if content.kmsg is None else tuple(map(new.record, content.kmsg)),
    )


def _call(call: str, answer: dict[str, Any] | None, new: Anonymiser) -> tuple[str, dict[str, Any] | None]:
    if not call.startswith(HTTP):
        return new.call(call), answer
    return call, answer and anonymous_response(call, answer, new)


def _tree(directory: Directory, at: str, new: Anonymiser) -> Directory:
    return {
        new.path(f"{at}/{name}").rpartition("/")[2]: _entry(entry, f"{at}/{name}", new)
        for name, entry in directory.items()
    }


def _entry(entry: Entry, path: str, new: Anonymiser) -> Entry:
    if isinstance(entry, dict):
        return _tree(entry, path, new)
    if isinstance(entry, Link):
        return Link(new.target(entry.text, path))
    assert isinstance(entry, str)
    return new.file(path, entry)


def _nvml(document: dict[str, Any] | None, new: Anonymiser) -> dict[str, Any] | None:
    if document is None:
        return None
    devices = document.get("devices", [])
    if isinstance(devices, list):
        devices = [_results(results, new) for results in devices]
    else:
        devices = {number: results and _results(results, new) for number, results in devices.items()}
    found = {**document, "system": _results(document.get("system", {}), new), "devices": devices}
    return {field: value for field, value in found.items() if field in document}


def _results(results: dict[str, Any], new: Anonymiser) -> dict[str, Any]:
    return {call: new.nvml(call, result) for call, result in results.items()}
