"""A bundle whose directory changes while it is read: what it says is read again after each change."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.growing_log import GrowingLog, LogUpdate
from nodeguard.bundle.inotify import Inotify
from nodeguard.bundle.layer import read_plain_file
from nodeguard.bundle.recording import Recording

_LOG = "kmsg"

# What is amiss is known by its file; this is what concerns the bundle as a whole.
_ALL = ""
_INOTIFY = "inotify"

# The kernel watches no more. Of a directory that is gone or may not be read, the next reading tells.
_FULL = (errno.ENOSPC, errno.ENOMEM)

# What is told: fields by name.
Told = dict[str, object]


class WatchedBundle:
    """A bundle on disk, as it is now. Raises BundleError where it breaks the format at the start.

    recording: what it says, but for the kernel log of its base. kmsg: that log, which may grow. tell: takes
    what has to be told of the directory; from any thread.

    The kernel tells of changes, so that looking costs one call of the system; after one all is read again.
    Of a file that breaks the format now, what it last said stays; where that does not fit either, or the tree
    itself breaks it, the whole bundle does.
    """

    def __init__(self, directory: str, tell: Callable[[Told], None]) -> None:
        self._directory = directory
        self._tell = tell
        self._amiss: dict[str, str] = {}
        self._good: dict[str, bytes] = {}
        self._looking, self._renewing = threading.Lock(), threading.Lock()
        self._is_stale = self._is_renewing = False
        self._top = -1
        self._inotify: Inotify | None = None
        self._log = os.path.join(directory, _LOG)
        self.kmsg = GrowingLog(self._log)
        try:
            self._inotify = Inotify()
            self.kmsg.watch()
        except OSError as error:
            self._not_watched(error)
        self._cover()
        self.recording = self._opened([])

    def note_changes(self) -> None:
        """Take note of what changed by now; `renewed` then reads it."""
        if self._inotify is None:
            return
        with self._looking:
            changes = self._inotify.take()
            if any(change.watch != self._top or change.name != _LOG for change in changes):
                self._is_stale = True

    def reload(self) -> Recording:
        """What the bundle says after the changes that were noted; reading them may take a moment."""
        if self._is_stale or self._is_renewing:
            with self._renewing:
                if self._is_stale:
                    self._is_renewing, self._is_stale = True, False
                    try:
                        self._renew()
                    finally:
                        self._is_renewing = False
        return self.recording

    def read_log(self, within: float) -> LogUpdate:
        """What is new in the kernel log; see GrowingLog.read. What is no record is told and left out."""
        grown = self.kmsg.read(within)
        defect = grown.defect or grown.existing.defect or grown.appended.defect
        if defect is not None:
            if self._log not in self._amiss:  # once, however many follow
                self._refused(self._log, defect)
        elif grown.existing.records or grown.appended.records:
            self._mended(self._log)
        return grown

    def is_recorded(self, source: str, paths: Iterable[str]) -> bool:
        """See Recording.is_recorded. A kernel log that nothing is said of can have a line at any time."""
        paths = tuple(paths)
        said = source in self.recording.manifest.sources
        return self.recording.is_recorded(source, paths) or (_LOG in paths and not said)

    def _renew(self) -> None:
        self._cover()
        defects: list[BundleError] = []
        try:
            self.recording = self._opened(defects)
        except BundleError as error:
            self._refused(_ALL, error)
            return
        for defect in defects:
            self._refused(defect.file, defect)
        for what in self._amiss.keys() - {defect.file for defect in defects} - {_INOTIFY, self._log}:
            self._mended(what)

    def _opened(self, defects: list[BundleError]) -> Recording:
        """The bundle as it is. A file that breaks the format gives what it last gave, and a defect."""
        instead: dict[str, bytes] = {}
        read: dict[str, bytes] = {}

        def reads(path: str, limit: int) -> bytes:
            read[path] = instead[path] if path in instead else read_plain_file(path, limit)
            return read[path]

        while True:
            read.clear()
            try:
                recording = Recording.open(self._directory, frozenset({_LOG}), reads)
            except BundleError as error:
                if error.file not in self._good or error.file in instead:
                    raise
                instead[error.file] = self._good[error.file]
                defects.append(error)
            else:
                self._good = read
                return recording

    def _cover(self) -> None:
        """Watch every directory, before anything in it is read, so that no change is missed."""
        if self._inotify is None:
            return
        for directory in _directories(self._directory):
            try:
                watch = self._inotify.watch(directory)
            except OSError as error:
                if error.errno in _FULL:
                    self._not_watched(error)
                    return
            else:
                self._top = watch if directory == self._directory else self._top

    def _not_watched(self, error: OSError) -> None:
        why = f"{self._directory}: changes are noticed late or not at all: inotify: {error.strerror}"
        remedy = "raise fs.inotify.max_user_watches and max_user_instances"
        self._once(_INOTIFY, {"event": "bundle not watched", "why": f"{why}: {remedy}"})

    def _refused(self, what: str, error: BundleError) -> None:
        line: Told = {"event": "bundle refused", "file": error.file, "field": error.field, "why": str(error)}
        self._once(what, line)

    def _mended(self, what: str) -> None:
        if self._amiss.pop(what, None) is not None:
            self._tell({"event": "bundle mended", "file": what or self._directory})

    def _once(self, what: str, line: Told) -> None:
        """Tell what is amiss, unless it was told and not mended since."""
        if self._amiss.get(what) != line["why"]:
            self._amiss[what] = str(line["why"])
            self._tell(line)

    def close(self) -> None:
        """Watch nothing any more."""
        self.kmsg.close()
        if self._inotify is not None:
            self._inotify.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _directories(top: str) -> Iterator[str]:
    """A directory and all below it, each before it is looked into; one that is gone by then has none."""
    todo = [top]
    while todo:
        directory = todo.pop()
        yield directory
        try:
            with os.scandir(directory) as entries:
                todo += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
