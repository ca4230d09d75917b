"""Recording: a bundle that was read; returns the recorded state of the machine at any second."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from nodeguard.bundle.calls import Answers, read_calls
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.file_tree import apply_changes
from nodeguard.bundle.kmsg import read_records
from nodeguard.bundle.layer import (
    BUNDLE_LIMIT,
    MAX_FILES,
    Layer,
    ReadFile,
    frame_directories,
    read_plain_file,
    scan_layer,
)
from nodeguard.bundle.manifest import FrameManifest, Manifest, read_errors, read_frame_manifest, read_manifest
from nodeguard.bundle.nvml import NvmlEvent, NvmlState, read_base, read_frame
from nodeguard.bundle.recorded_tree import RecordedTree, TreeCache
from nodeguard.model.instant import Instant

_UPTIME = "/proc/uptime"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class RecordedState(Struct, frozen=True):
    """The state of a recorded machine at one second.

    calls: results of system calls, by call. nvml: results in the form of the base's nvml.json, `system`,
    `devices` and perhaps `error`; None if there is none.
    """

    instant: Instant
    tree: RecordedTree
    calls: Answers
    nvml: dict[str, Any] | None

    def read(self, path: str) -> str:
        """Return the text of a file; uptime and boot id come from the bundle's fields.

        The fields override the recorded files, because a constant uptime would be wrong.
        """
        text = self.tree.read(path)
        if path == _UPTIME:
            return " ".join([f"{self.instant.mono:.2f}", *text.split()[1:]]) + "\n"
        return f"{self.instant.boot_id}\n" if path == _BOOT_ID else text


class _ClockReading(Struct, frozen=True):
    """A time of a clock, and the second of the recording at which it was read."""

    reading: float
    at: float

    def on(self, seconds: float) -> float:
        return self.reading + (seconds - self.at)


class _State(Struct, frozen=True):
    """The machine from one frame on. boot: number of the boot. log, events: additions of this frame."""

    at: float
    wall: _ClockReading
    mono: _ClockReading
    boot_id: str
    boot: int
    tree: RecordedTree
    calls: Answers
    nvml: NvmlState | None
    document: dict[str, Any] | None
    log: tuple[str, ...]
    events: tuple[NvmlEvent, ...]


class Recording:
    """A bundle that was read and is valid.

    manifest: its bundle.yaml. end: second of its last frame, 0 if it has none.
    """

    def __init__(self, manifest: Manifest, states: tuple[_State, ...], own: frozenset[str]) -> None:
        self.manifest = manifest
        self.end = states[-1].at
        self._states = states
        self._seconds = [state.at for state in states]
        self._own = own

    @classmethod
    def open(
        cls, directory: str, exclude: frozenset[str] = frozenset(), read_file: ReadFile = read_plain_file
    ) -> Recording:
        """Read a bundle. Raises BundleError if anything in it is invalid.

        exclude: names at its top that the caller reads itself, such as a growing log. read_file: reads the
        format's own files.
        """
        file = os.path.join(directory, "bundle.yaml")
        missing = BundleError(file, "", "is missing", "name the directory of a recording, or write this file")
        # Before all else: an error about another file has the remedy to remove it, here of another program.
        if os.path.isdir(directory) and _is_missing(file):
            raise missing
        base = scan_layer(directory, base=True, room=MAX_FILES, exclude=exclude, read_file=read_file)
        data = base.read("bundle.yaml")
        if data is None:
            raise missing
        manifest = read_manifest(data, file)
        start = FrameManifest((), manifest.boot_id, manifest.recorded_at, manifest.uptime_s)
        states = [_after(_before_base(), base, start, 0)]
        own = set(base.own)
        room = MAX_FILES - base.count
        size = base.size()
        for seconds, path in frame_directories(directory):
            layer = scan_layer(path, base=False, room=room, read_file=read_file)
            room -= layer.count
            size += layer.size()
            if size > BUNDLE_LIMIT:
                problem = f"with the frames before it, the bundle is larger than {BUNDLE_LIMIT >> 20} MiB"
                raise BundleError(path, "", problem, "record for a shorter time, or fewer sources")
            own |= layer.own
            states.append(_after(states[-1], layer, _frame_manifest(layer), seconds))
        return cls(manifest, tuple(states), frozenset(own))

    def state_at(self, seconds: float) -> RecordedState:
        """Return the machine's state so many seconds after `recorded_at`, from 0, also past the end."""
        state = self._states[max(0, bisect_right(self._seconds, seconds) - 1)]
        instant = Instant(state.wall.on(seconds), state.mono.on(seconds), state.boot_id)
        return RecordedState(instant, state.tree, state.calls, state.document)

    def log(self, until: float, since: float = -math.inf) -> tuple[str, ...]:
        """Return kernel log records after second `since` up to `until`, oldest first.

        A boot starts a new log: only records of the boot at `until` are returned. Each record has the form of
        /dev/kmsg, without its last newline.
        """
        states = self._between(since, until)
        return tuple(record for state in states if state.boot == states[-1].boot for record in state.log)

    def nvml_events(self, until: float, since: float = -math.inf) -> tuple[NvmlEvent, ...]:
        """Return NVML events after second `since` up to `until`, oldest first."""
        return tuple(event for state in self._between(since, until) for event in state.events)

    @property
    def has_nvml(self) -> bool:
        """Whether the recording has results of NVML calls."""
        return "nvml.json" in self._own

    def is_recorded(self, source: str, paths: Iterable[str]) -> bool:
        """Return whether a source was recorded: from the manifest, else whether the bundle has data of it.

        paths: absolute paths, `kmsg`, `nvml.json`, or `call:NAME` for a call, whatever its arguments.
        """
        if source in self.manifest.sources:
            return self.manifest.sources[source] == "recorded"
        return any(self._has_data(path) for path in paths)

    def _has_data(self, path: str) -> bool:
        if path.startswith("call:"):
            name = path[5:]
            calls = (call for state in self._states for call in state.calls)
            return any(call == name or call.startswith(f"{name}(") for call in calls)
        if not path.startswith("/"):
            return path in self._own
        return any(state.tree.is_recorded((path,)) for state in self._states)

    def _between(self, since: float, until: float) -> tuple[_State, ...]:
        return self._states[bisect_right(self._seconds, since) : bisect_right(self._seconds, until)]


def _is_missing(file: str) -> bool:
    """Return whether a path does not exist: of a directory that may not be searched, nothing is known."""
    try:
        os.lstat(file)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _frame_manifest(layer: Layer) -> FrameManifest:
    file = layer.path("frame.yaml")
    data = layer.read("frame.yaml")
    if data is None:
        raise BundleError(file, "", "is missing", "write {} if the frame has no fields")
    return read_frame_manifest(data, file)


def _before_base() -> _State:
    """Return the state before the base."""
    never = _ClockReading(0.0, 0.0)
    return _State(0.0, never, never, "", 0, RecordedTree({}, {}, TreeCache()), {}, None, None, (), ())


def _after(before: _State, layer: Layer, manifest: FrameManifest, seconds: float) -> _State:
    """Return the state after a layer, the base or a frame, is applied."""
    base = not before.boot_id
    errors, calls, nvml, document = before.tree.errors, before.calls, before.nvml, before.document
    log: tuple[str, ...] = ()
    events: tuple[NvmlEvent, ...] = ()
    if (data := layer.read("errors.yaml")) is not None:
        errors = apply_changes(errors, read_errors(data, layer.path("errors.yaml"), base=base))
    if (data := layer.read("calls.json")) is not None:
        calls = apply_changes(calls, read_calls(data, layer.path("calls.json"), base=base))
    if (data := layer.read("nvml.json")) is not None:
        file = layer.path("nvml.json")
        nvml, events = read_base(data, file) if base else read_frame(nvml or NvmlState(), data, file)
        document = nvml.document()
    if (data := layer.read("kmsg")) is not None:
        log = read_records(data, layer.path("kmsg"))
    boot_id = manifest.boot_id or before.boot_id
    return _State(
        at=float(seconds),
        wall=before.wall if manifest.recorded_at is None else _ClockReading(manifest.recorded_at, seconds),
        mono=before.mono if manifest.uptime_s is None else _ClockReading(manifest.uptime_s, seconds),
        boot_id=boot_id,
        boot=before.boot + (boot_id != before.boot_id),
        tree=before.tree.with_frame(manifest.removed, layer.tree, errors),
        calls=calls,
        nvml=nvml,
        document=document,
        log=log,
        events=events,
    )
