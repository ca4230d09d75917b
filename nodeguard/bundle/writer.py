"""BundleWriter: writes the readings of a recorded machine as a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.calls import Answers
from nodeguard.bundle.file_tree import changes_between, tree_difference
from nodeguard.bundle.kmsg import KMSG, is_record
from nodeguard.bundle.layer import FILE_LIMIT, Directory, is_reserved
from nodeguard.bundle.layer_files import BundleDirectory, LayerContent, anonymise_layer, layer_files
from nodeguard.bundle.manifest import FrameManifest, Manifest, Presence
from nodeguard.bundle.nvml import NvmlEvent, NvmlState, after_round, frame_document
from nodeguard.bundle.observed_tree import ObservedTree, ReadFailure
from nodeguard.bundle.privacy import is_mount_table, is_private, public_mounts, public_records
from nodeguard.bundle.process_files import opaque_owner
from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import Instant

__all__ = ["BundleWriter", "ReadFailure"]

# Seconds by which a clock may differ between frames without a jump: the second of a frame is rounded.
_CLOCK_SLACK = 1.0


class _LayerState(Struct, frozen=True):
    """The state of the machine after the layers that were written so far."""

    tree: Directory
    errors: dict[str, str]
    calls: Answers
    nvml: NvmlState | None


class BundleWriter:
    """Writes a bundle: its base, then frame by frame.

    directory: must be empty or not exist. manifest: of the base. readlink: returns the text of a link of the
    machine (Machine.link). notes: messages for the user on readings that were not recorded completely.

    A reading is passed as its result or as the error that it raised. Readings before the first call of
    `frame` make the base. A new reading replaces the last one of the same path or call; all others stay.

    Raises BundleError if the directory is not empty or the bundle is too large, and OSError of the disk; what
    was written until then is a complete bundle, or nothing.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        readlink: Callable[[str], str],
        *,
        anonymiser: Anonymiser | None = None,
    ) -> None:
        self._store = BundleDirectory(directory)
        self.notes: list[str] = []
        self._anonymiser = anonymiser
        self._salt = os.urandom(32)
        self._readlink = readlink
        self._manifest: Manifest | FrameManifest = manifest
        self._seconds = 0
        self._marked_at = 0
        self._marked = Instant(manifest.recorded_at, manifest.uptime_s, manifest.boot_id)
        self._open = True
        self._begin(_LayerState({}, {}, {}, None))

    def _begin(self, state: _LayerState) -> None:
        self._before = state
        self._observed = ObservedTree(state.tree, state.errors, self._readlink)
        self._calls = dict(state.calls)
        self._nvml = state.nvml
        self._events: list[NvmlEvent] = []
        self._records: list[str] | None = None

    def file(self, path: str, result: str | ReadFailure) -> None:
        """Add the reading of a file. Private files are left out; a file that is too long is cut."""
        if is_private(path):
            return
        if isinstance(result, str) and is_mount_table(path):
            result = public_mounts(result)
        if isinstance(result, str):
            result = opaque_owner(path, result, self._salt) or result
        # A character has at most four bytes.
        if isinstance(result, str) and len(result) * 4 >= FILE_LIMIT:
            data = result.encode(errors="replace")
            if len(data) >= FILE_LIMIT:
                self._note(f"{path}: recorded up to {FILE_LIMIT >> 20} MiB, what follows is left out")
                result = data[:FILE_LIMIT].decode(errors="ignore")
        self._observed.file(path, result)

    def link(self, path: str, result: str | ReadFailure) -> None:
        """Add the reading of a link."""
        self._observed.link(path, result)

    def names(self, path: str, result: Iterable[str] | ReadFailure) -> None:
        """Add the listing of a directory."""
        self._observed.names(path, result)

    def call(self, call: str, result: dict[str, Any]) -> None:
        """Add the result of a system call, arguments in parentheses; `{"error": NAME}` if it failed."""
        self._calls[call.encode(errors="replace").decode()] = result

    def nvml(self, entries: Iterable[tuple[int, str, Any]]) -> None:
        """Add a round of NVML calls: the device's index, or -1 for the system; the call; its result.

        A failed result is `{"error": NAME}`, also of nvmlInit and nvmlDeviceGetHandleByIndex.
        """
        self._nvml = after_round(self._nvml or NvmlState(), entries)

    def event(self, device: int, kind: int, data: int) -> None:
        """Add an NVML event: the device's index, the type and the data of the event."""
        self._events.append(NvmlEvent(device, kind, data))

    def log(self, result: Iterable[str] | ReadFailure) -> None:
        """Add a reading of the kernel log: new records, in the form of /dev/kmsg, or a failure."""
        if isinstance(result, OSError | UnansweredError):
            self._observed.refused(KMSG, result)
            return
        self._observed.refused(KMSG, None)
        self._records = self._records or []
        for record in public_records(text.rstrip("\n") for text in result):
            if is_record(record):
                self._records.append(record)
            else:
                self._note("kernel log: a record without the form of /dev/kmsg is left out")

    def omit(self, source: str) -> None:
        """Mark a source that was not read completely as not recorded in the base.

        Something that was not read must not look absent.
        """
        if isinstance(self._manifest, Manifest):
            sources: dict[str, Presence] = {**self._manifest.sources, source: "not-recorded"}
            self._manifest = replace(self._manifest, sources=sources)

    def frame(self, seconds: int, instant: Instant) -> None:
        """Write all readings so far and begin a frame, so many whole seconds after the base."""
        if not self._open:
            raise ValueError("the bundle is closed: open another writer")
        if seconds <= self._seconds:
            raise ValueError(f"frame {seconds} does not come after {self._seconds}")
        self._write()
        elapsed = seconds - self._marked_at
        jumped = abs(instant.wall - self._marked.wall - elapsed) > _CLOCK_SLACK
        slept = abs(instant.mono - self._marked.mono - elapsed) > _CLOCK_SLACK
        booted = instant.boot_id != self._marked.boot_id
        self._seconds = seconds
        self._manifest = FrameManifest()
        if jumped or slept or booted:
            boot_id = instant.boot_id if booted else None
            self._manifest = FrameManifest((), boot_id, instant.wall, instant.mono)
            self._marked, self._marked_at = instant, seconds

    def close(self) -> None:
        """Write the last readings. The writer takes no readings after it."""
        if self._open:
            self._write()
            self._open = False

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _write(self) -> None:
        """Write the base or the frame, and begin the next frame."""
        before = self._before
        state = _LayerState(self._observed.tree, self._observed.errors, self._calls, self._nvml)
        removed, tree = tree_difference(before.tree, state.tree)
        for name in [name for name in tree if is_reserved(name)]:
            self._note(f"/{name}: not recorded, the bundle format uses this name")
            del tree[name]
        manifest = self._manifest
        if isinstance(manifest, FrameManifest):
            manifest = replace(manifest, removed=tuple(removed))
        content = LayerContent(
            manifest=manifest,
            tree=tree,
            errors=changes_between(before.errors, state.errors),
            calls=changes_between(before.calls, state.calls),
            nvml=self._nvml_document(),
            kmsg=None if self._records is None else tuple(self._records),
        )
        if self._anonymiser:
            content = anonymise_layer(content, self._anonymiser)
        self._open = False
        self._store.write_layer(self._seconds, layer_files(content))
        self._open = True
        self._begin(state)

    def _nvml_document(self) -> dict[str, Any] | None:
        """Return the content of nvml.json; None if there is nothing to write."""
        before, after = self._before.nvml, self._nvml
        if after is None:
            return None
        base = isinstance(self._manifest, Manifest)
        document = after.document() if base else frame_document(before or NvmlState(), after)
        if events := [event for event in self._events if event.device < after.numbers_used]:
            document["events"] = events
        return document if document or before is None else None
