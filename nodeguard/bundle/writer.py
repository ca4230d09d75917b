"""Writing a recording: what a recording machine tells becomes a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.bundle_directory import BundleDirectory
from nodeguard.bundle.calls import Answers
from nodeguard.bundle.kmsg import KMSG, is_record
from nodeguard.bundle.layer import FILE_LIMIT, Directory, is_reserved
from nodeguard.bundle.layer_content import LayerContent, anonymise_layer, layer_files
from nodeguard.bundle.manifest import FrameManifest, Manifest, Presence
from nodeguard.bundle.mask import is_private, public_records
from nodeguard.bundle.mount_table import is_mount_table, public_mounts
from nodeguard.bundle.nvml import NvmlEvent, NvmlState, after_round, frame_document
from nodeguard.bundle.observed_tree import ObservedTree, ReadFailure
from nodeguard.bundle.overlay import changes_between, tree_difference
from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import Instant

__all__ = ["BundleWriter", "ReadFailure"]

# A clock that is off by less between two frames has not jumped: a frame's second is a whole number.
_CLOCK_SLACK = 1.0


class _Known(Struct, frozen=True):
    """What the bundle says of the machine so far."""

    tree: Directory
    errors: dict[str, str]
    calls: Answers
    nvml: NvmlState | None


class BundleWriter:
    """Writes a bundle: its base, then frame by frame.

    directory: where to; it must be empty or not there. manifest: of the base. readlink: text of a link of the
    machine (Machine.link). notes: what could not be taken whole, in sentences for the user.

    What came of a reading is told by its answer or by what it raised. What is told before the first call of
    `frame` is the base. What is told again replaces what was told before, and what is not told again stays.

    Raises BundleError where the directory is not free or the bundle grows too large, and OSError where the
    disk refuses; what was written until then is a whole bundle, or nothing.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        readlink: Callable[[str], str],
        *,
        anonymise: bool = False,
    ) -> None:
        self._store = BundleDirectory(directory)
        self.notes: list[str] = []
        self._anonymiser = Anonymiser(manifest.hostname) if anonymise else None
        self._readlink = readlink
        self._manifest: Manifest | FrameManifest = manifest
        self._seconds = 0
        self._marked_at = 0
        self._marked = Instant(manifest.recorded_at, manifest.uptime_s, manifest.boot_id)
        self._open = True
        self._begin(_Known({}, {}, {}, None))

    def _begin(self, known: _Known) -> None:
        self._before = known
        self._survey = ObservedTree(known.tree, known.errors, self._readlink)
        self._calls = dict(known.calls)
        self._nvml = known.nvml
        self._events: list[NvmlEvent] = []
        self._records: list[str] | None = None

    def file(self, path: str, said: str | ReadFailure) -> None:
        """What came of reading a file. What no recording may hold is left out; what is too long is cut."""
        if is_private(path):
            return
        if isinstance(said, str) and is_mount_table(path):
            said = public_mounts(said)
        # No character takes more than four bytes.
        if isinstance(said, str) and len(said) * 4 >= FILE_LIMIT:
            data = said.encode(errors="replace")
            if len(data) >= FILE_LIMIT:
                self._note(f"{path}: recorded up to {FILE_LIMIT >> 20} MiB, what follows is left out")
                said = data[:FILE_LIMIT].decode(errors="ignore")
        self._survey.file(path, said)

    def link(self, path: str, said: str | ReadFailure) -> None:
        """What came of reading a link."""
        self._survey.link(path, said)

    def names(self, path: str, said: Iterable[str] | ReadFailure) -> None:
        """What came of listing a directory."""
        self._survey.names(path, said)

    def call(self, call: str, answer: dict[str, Any]) -> None:
        """Answer of a system call, its arguments in parentheses; `{"error": WORD}` where it failed."""
        self._calls[call.encode(errors="replace").decode()] = answer

    def nvml(self, entries: Iterable[tuple[int, str, Any]]) -> None:
        """One round of NVML calls: the device's index, or -1 for the system; the call; its result.

        A failed result is `{"error": NAME}`, also of nvmlInit and nvmlDeviceGetHandleByIndex.
        """
        self._nvml = after_round(self._nvml or NvmlState(), entries)

    def event(self, device: int, kind: int, data: int) -> None:
        """An NVML event: the device's index, the type of event, and what came with it."""
        self._events.append(NvmlEvent(device, kind, data))

    def log(self, said: Iterable[str] | ReadFailure) -> None:
        """What came of reading the kernel log: new records, as /dev/kmsg gives them, or a failure."""
        if isinstance(said, OSError | UnansweredError):
            self._survey.refused(KMSG, said)
            return
        self._survey.refused(KMSG, None)
        self._records = self._records or []
        for record in public_records(text.rstrip("\n") for text in said):
            if is_record(record):
                self._records.append(record)
            else:
                self._note("kernel log: a record that has not the form of /dev/kmsg is left out")

    def omit(self, source: str) -> None:
        """A source that could not be read to its end. The base then does not count it as recorded: that a
        thing was not read is not to be taken for its absence.
        """
        if isinstance(self._manifest, Manifest):
            sources: dict[str, Presence] = {**self._manifest.sources, source: "not-recorded"}
            self._manifest = replace(self._manifest, sources=sources)

    def frame(self, seconds: int, instant: Instant) -> None:
        """Write what was told, and begin a frame: so many whole seconds after the base, at this moment."""
        if not self._open:
            raise ValueError("the bundle is closed: open another writer")
        if seconds <= self._seconds:
            raise ValueError(f"frame {seconds} does not come after {self._seconds}")
        self._write()
        ago = seconds - self._marked_at
        jumped = abs(instant.wall - self._marked.wall - ago) > _CLOCK_SLACK
        slept = abs(instant.mono - self._marked.mono - ago) > _CLOCK_SLACK
        booted = instant.boot_id != self._marked.boot_id
        self._seconds = seconds
        self._manifest = FrameManifest()
        if jumped or slept or booted:
            boot_id = instant.boot_id if booted else None
            self._manifest = FrameManifest((), boot_id, instant.wall, instant.mono)
            self._marked, self._marked_at = instant, seconds

    def close(self) -> None:
        """Write what was told last. Nothing can be told after."""
        if self._open:
            self._write()
            self._open = False

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _write(self) -> None:
        """Write the base or frame that was told, and begin the next."""
        before = self._before
        known = _Known(self._survey.tree, self._survey.errors, self._calls, self._nvml)
        removed, tree = tree_difference(before.tree, known.tree)
        for name in [name for name in tree if is_reserved(name)]:
            self._note(f"/{name}: not recorded, the name is the bundle's own")
            del tree[name]
        manifest = self._manifest
        if isinstance(manifest, FrameManifest):
            manifest = replace(manifest, removed=tuple(removed))
        content = LayerContent(
            manifest=manifest,
            tree=tree,
            errors=changes_between(before.errors, known.errors),
            calls=changes_between(before.calls, known.calls),
            nvml=self._nvml_document(),
            kmsg=None if self._records is None else tuple(self._records),
        )
        if self._anonymiser:
            content = anonymise_layer(content, self._anonymiser)
        self._open = False
        self._store.write_layer(self._seconds, layer_files(content))
        self._open = True
        self._begin(known)

    def _nvml_document(self) -> dict[str, Any] | None:
        """Content of nvml.json; None where there is nothing to say."""
        before, after = self._before.nvml, self._nvml
        if after is None:
            return None
        base = isinstance(self._manifest, Manifest)
        document = after.document() if base else frame_document(before or NvmlState(), after)
        if events := [event for event in self._events if event.device < after.numbers_used]:
            document["events"] = events
        return document if document or before is None else None
