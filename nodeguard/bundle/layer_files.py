"""Files of one layer of a bundle, base or frame: its content, anonymised and written to the directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.calls import HTTP, AnswerChanges
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.layer import BUNDLE_LIMIT, FRAMES, MAX_FILES, Directory, Entry, Link
from nodeguard.bundle.manifest import (
    FrameManifest,
    Manifest,
    write_errors,
    write_frame_manifest,
    write_manifest,
)

# Names of a machine: the whole response to a request with this path, and fields of Azure's events.
_NAME_PATH = "/compute/name?"
_NAMES = frozenset(("Resources", "EventId"))


def anonymous_response(call: str, answer: dict[str, Any], new: Anonymiser) -> dict[str, Any]:
    """Return a response of calls.json with identities replaced; a machine has the same new name in all."""
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
        return [_value(item, new, is_name=is_name) for item in value]
    if isinstance(value, dict):
        return {field: _value(item, new, is_name=is_name or field in _NAMES) for field, item in value.items()}
    return value


class LayerContent(Struct, frozen=True):
    """A layer. tree: its files as text; the other fields: the content of the file with that name.

    None if the layer has no such file.
    """

    manifest: Manifest | FrameManifest
    tree: Directory
    errors: dict[str, str | None]
    calls: AnswerChanges
    nvml: dict[str, Any] | None
    kmsg: tuple[str, ...] | None


def layer_files(content: LayerContent) -> dict[str, str | Link | None]:
    """Return the files of a layer by path: a text, a link, None for an empty directory."""
    files: dict[str, str | Link | None] = {}
    if isinstance(content.manifest, Manifest):
        files["bundle.yaml"] = write_manifest(content.manifest)
    else:
        files["frame.yaml"] = write_frame_manifest(content.manifest)
    if content.errors:
        files["errors.yaml"] = write_errors(content.errors)
    if content.calls:
        files["calls.json"] = _json(content.calls)
    if content.nvml is not None:
        files["nvml.json"] = _json(content.nvml)
    if content.kmsg is not None:
        files["kmsg"] = "".join(f"{record}\n" for record in content.kmsg)
    _add(files, "", content.tree)
    return files


def _add(files: dict[str, str | Link | None], above: str, directory: Directory) -> None:
    for name, entry in directory.items():
        path = f"{above}{name}"
        if isinstance(entry, dict):
            _add(files, f"{path}/", entry)
            if not entry:
                files[path] = None
        else:
            assert isinstance(entry, str | Link)
            files[path] = entry


def _json(value: Any) -> str:
    """Return JSON with line breaks, for users and for git."""
    return json.format(json.encode(value), indent=1).decode() + "\n"


def anonymise_layer(content: LayerContent, new: Anonymiser) -> LayerContent:
    """Return a layer with every identity replaced."""
    # First: it has the serial numbers, which other files may have without a name.
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
        errors={new.path(path): failure for path, failure in content.errors.items()},
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
    anonymous = {**document, "system": _results(document.get("system", {}), new), "devices": devices}
    return {field: value for field, value in anonymous.items() if field in document}


def _results(results: dict[str, Any], new: Anonymiser) -> dict[str, Any]:
    return {call: new.nvml(call, result) for call, result in results.items()}


MANIFESTS = frozenset(("bundle.yaml", "frame.yaml"))
# Half of a reader's limit, because a reader counts directories too.
_MAX_WRITTEN = MAX_FILES // 2


class BundleDirectory:
    """Writes layers below a directory, which must be empty or not exist.

    Raises BundleError if it is not empty, or if the bundle would be too large, and OSError of the disk;
    nothing of the failed layer stays then.
    """

    def __init__(self, directory: str) -> None:
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise BundleError(directory, "", "is not a directory", "name an empty or a new directory")
        # Only for its owner: a recording has many details of a machine.
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.listdir(directory):
            raise BundleError(directory, "", "is not empty", "name an empty or a new directory")
        self._directory = directory
        self._size = 0
        self._count = 0

    def write_layer(self, seconds: int, layer: Mapping[str, str | Link | None]) -> None:
        """Write the base (0 seconds) or a frame: texts, links, and directories (None) by path."""
        texts = {
            path: entry.encode(errors="replace") for path, entry in layer.items() if isinstance(entry, str)
        }
        self._size += sum(map(len, texts.values()))
        self._count += len(layer)
        if self._size > BUNDLE_LIMIT or self._count > _MAX_WRITTEN:
            problem = f"stops before second {seconds}: over {BUNDLE_LIMIT >> 20} MiB or {_MAX_WRITTEN} files"
            raise BundleError(self._directory, "", problem, "record for a shorter time, or fewer sources")
        frame = (FRAMES, f"{seconds:06}") if seconds else ()
        try:
            self._write(frame, layer, texts)
        except OSError:
            self._remove(frame)
            raise

    def _write(
        self, frame: tuple[str, ...], layer: Mapping[str, str | Link | None], texts: Mapping[str, bytes]
    ) -> None:
        # The manifest comes last: without it a reader rejects an incomplete layer.
        for path in sorted(layer, key=lambda path: path in MANIFESTS):
            entry = layer[path]
            host = os.path.join(self._directory, *frame, path)
            os.makedirs(host if entry is None else os.path.dirname(host), exist_ok=True)
            if isinstance(entry, Link):
                os.symlink(entry.text, host)
            elif entry is not None:
                with open(host, "xb") as file:
                    file.write(texts[path])

    def _remove(self, frame: tuple[str, ...]) -> None:
        """Remove an incomplete layer. The directory was empty, so everything in it is of this bundle."""
        if frame:
            shutil.rmtree(os.path.join(self._directory, *frame), ignore_errors=True)
            return
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
