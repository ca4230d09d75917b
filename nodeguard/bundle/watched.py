"""WatchedBundle: a bundle that may change while it is read; it is read again after each change."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Self

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.growing_log import GrowingLog, LogUpdate
from nodeguard.bundle.inotify import Inotify
from nodeguard.bundle.layer import read_plain_file
from nodeguard.bundle.recording import Recording

_LOG = "kmsg"

# Problems are recorded by file; this key is for the bundle as a whole.
logger = logging.getLogger(__name__)

_ALL = ""
_INOTIFY = "inotify"

# Errors that mean that the kernel has no more watches. The next read reports a directory that disappeared.
_FULL = (errno.ENOSPC, errno.ENOMEM)


class WatchedBundle:
    """A bundle on disk in its current state. Raises BundleError if it is invalid at the start.

    recording: the bundle without the kernel log of its base. kmsg: that log, which may grow.

    inotify reports changes, so that a check costs one system call; after a change everything is read again.
    If a file is invalid now, its last valid content is used. If that does not fit, or the tree is invalid,
    the last valid recording stays.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._problems: dict[str, str] = {}
        self._valid: dict[str, bytes] = {}
        self._change_lock, self._reload_lock = threading.Lock(), threading.Lock()
        self._is_stale = self._is_reloading = False
        self._top = -1
        self._inotify: Inotify | None = None
        self._log = os.path.join(directory, _LOG)
        self.kmsg = GrowingLog(self._log)
        try:
            self._inotify = Inotify()
            self.kmsg.watch()
        except OSError as error:
            self._not_watched(error)
        try:
            self._cover()
            self.recording = self._opened([])
        except BundleError:
            self.close()
            raise

    def note_changes(self) -> None:
        """Note changes up to now; `reload` then reads them."""
        if self._inotify is None:
            return
        with self._change_lock:
            changes = self._inotify.take()
            if any(change.watch != self._top or change.name != _LOG for change in changes):
                self._is_stale = True

    def reload(self) -> Recording:
        """Return the recording after the changes that were noted; reading them may take a while."""
        if self._is_stale or self._is_reloading:
            with self._reload_lock:
                if self._is_stale:
                    self._is_reloading, self._is_stale = True, False
                    try:
                        self._renew()
                    finally:
                        self._is_reloading = False
        return self.recording

    def read_log(self, within: float) -> LogUpdate:
        """Return new lines of the kernel log, see GrowingLog.read; report invalid lines once."""
        grown = self.kmsg.read(within)
        defect = grown.defect or grown.existing.defect or grown.appended.defect
        if defect is not None:
            if self._log not in self._problems:  # once for any number of lines
                self._refused(self._log, defect)
        elif grown.existing.records or grown.appended.records:
            self._fixed(self._log)
        return grown

    def is_recorded(self, source: str, paths: Iterable[str]) -> bool:
        """See Recording.is_recorded. A log that the manifest does not name can get a line at any time."""
        paths = tuple(paths)
        is_named = source in self.recording.manifest.sources
        return self.recording.is_recorded(source, paths) or (_LOG in paths and not is_named)

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
        for key in self._problems.keys() - {defect.file for defect in defects} - {_INOTIFY, self._log}:
            self._fixed(key)

    def _opened(self, defects: list[BundleError]) -> Recording:
        """Read the bundle. An invalid file is replaced by its last valid content and gives a defect."""
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
                if error.file not in self._valid or error.file in instead:
                    raise
                instead[error.file] = self._valid[error.file]
                defects.append(error)
            else:
                self._valid = read
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
        remedy = "raise fs.inotify.max_user_watches and max_user_instances"
        fields = {"directory": self._directory, "error": f"inotify: {error.strerror}: {remedy}"}
        self._log_once(_INOTIFY, "changes of the bundle are noticed late or not at all", fields)

    def _refused(self, key: str, error: BundleError) -> None:
        fields = {"file": error.file, "field": error.field, "error": str(error)}
        self._log_once(key, "a file of the bundle is invalid, its last valid content stays in use", fields)

    def _fixed(self, key: str) -> None:
        if self._problems.pop(key, None) is not None:
            logger.info("the file of the bundle is valid again", extra={"file": key or self._directory})

    def _log_once(self, key: str, message: str, fields: dict[str, str]) -> None:
        """Log a problem, unless the same problem was logged and not fixed since."""
        if self._problems.get(key) != fields["error"]:
            self._problems[key] = fields["error"]
            logger.warning(message, extra=fields)

    def close(self) -> None:
        """End the watch and close the log."""
        self.kmsg.close()
        if self._inotify is not None:
            self._inotify.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _directories(top: str) -> Iterator[str]:
    """Yield a directory and all below it, each before it is listed; one that disappeared has none."""
    todo = [top]
    while todo:
        directory = todo.pop()
        yield directory
        try:
            with os.scandir(directory) as entries:
                todo += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
