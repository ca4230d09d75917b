"""The identity of a running history's file: whether its pages are those that the store wrote.

Another program may copy a backup over the file, or move the journal into it with a checkpoint, at any time.
Both change the file, and SQLite reports neither to other connections. The journal and its index have the
difference (https://www.sqlite.org/walformat.html). It is not needed with a history that is never restored in
place while it is written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

# The beginning of each file of SQLite (https://www.sqlite.org/fileformat2.html).
_HEADER = b"SQLite format 3\0"

# Bytes of the journal's header, and of the header of a frame.
_JOURNAL_HEADER, _FRAME_HEADER = 32, 24

# The index of the journal: iChange, mxFrame, aSalt, nBackfill and nBackfillAttempted.
_INDEX = struct.Struct("=8xI4xI12x8s56xI28xI")


class _Index(NamedTuple):
    """The state of the journal.

    commits: a counter of all programs. frames: number of pages in the journal. generation: differs after the
    journal began again. moved: the last frame that is in the file. moving: the last one that a checkpoint has
    begun to move.
    """

    commits: int
    frames: int
    generation: bytes
    moved: int
    moving: int


class _Page(NamedTuple):
    """A page after the latest write.

    frame: its latest frame in the journal; 0 without one. latest: its content there. in_file: its content in
    the file.
    """

    number: int
    frame: int
    latest: bytes
    in_file: bytes


class FileIdentity:
    """The pages of an open file and of its journal. Raises OSError.

    Closing a descriptor of these files ends the locks of SQLite: close it after the connection.
    """

    def __init__(self, path: str, page_bytes: int, clock_page: int) -> None:
        """clock_page: the number of a page that differs after each write."""
        self._page_bytes = page_bytes
        self._descriptors: list[int] = []
        try:
            for name in (path, f"{path}-wal", f"{path}-shm"):
                self._descriptors.append(os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            self.close()
            raise
        self._file, self._journal, self._shared = self._descriptors
        self._index = _Index(0, 0, b"", 0, 0)
        self._pages = [_Page(number, 0, b"", b"") for number in (1, clock_page)]
        self._changed_at = 0
        self.record()

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self._descriptors:
            with suppress(OSError):
                os.close(descriptor)

    def record(self) -> None:
        """Record the state of the file. Call it after each write."""
        while True:
            index, changed_at = self._read_index(), self._read_changed_at()
            pages = [self._recorded(page, index) for page in self._pages]
            if (self._read_index(), self._read_changed_at()) == (index, changed_at):
                break
        self._index, self._changed_at, self._pages = index, changed_at, pages

    def is_overwritten(self) -> bool:
        """Return whether the file is no file of SQLite now: SQLite reads its beginning only once."""
        return os.pread(self._file, len(_HEADER), 0) != _HEADER

    def is_written_by_others(self) -> bool:
        """Return whether another program has written to the history since the latest record."""
        return self._read_index().commits != self._index.commits

    def is_copied_over(self) -> bool:
        """Return whether the file has pages that no checkpoint since the latest record can have written."""
        while True:
            index = self._read_index()
            is_expected = self._is_unchanged(index) or self._is_expected(index)
            if self._read_index() == index:
                return not is_expected

    def _is_unchanged(self, index: _Index) -> bool:
        return (index, self._read_changed_at()) == (self._index, self._changed_at) and all(
            self._read_page(page.number) == page.in_file for page in self._pages
        )

    def _is_expected(self, index: _Index) -> bool:
        if index.generation != self._index.generation:
            return all(self._read_page(page.number) == page.latest for page in self._pages)
        return all(self._is_expected_page(page, index) for page in self._pages) and self._has_moved(index)

    def _is_expected_page(self, page: _Page, index: _Index) -> bool:
        content = self._read_page(page.number)
        if page.frame <= index.moved:
            return content == page.latest
        # The frame that a checkpoint moves may be earlier than the latest one: it was written meanwhile.
        return content == page.in_file or any(
            content == self._read_frame(frame)
            for frame in self._frames(page.number, self._index.moved, index.moving)
        )

    def _has_moved(self, index: _Index) -> bool:
        """Return whether the file has each page that SQLite no longer reads from the journal."""
        latest = {self._number(frame): frame for frame in range(1, index.frames + 1)}
        return all(
            self._read_page(int.from_bytes(number, "big")) == self._read_frame(frame)
            for number, frame in latest.items()
            if frame <= index.moved
        )

    def _recorded(self, page: _Page, index: _Index) -> _Page:
        is_continued = index.generation == self._index.generation
        frame = page.frame if is_continued else 0
        *_, frame = frame, *self._frames(page.number, self._index.frames if is_continued else 0, index.frames)
        in_file = self._read_page(page.number)
        return _Page(page.number, frame, self._read_frame(frame) if frame else in_file, in_file)

    def _frames(self, number: int, after: int, last: int) -> Iterator[int]:
        """Return the frames of a page: those after one, up to the last."""
        name = number.to_bytes(4, "big")
        return (frame for frame in range(after + 1, last + 1) if self._number(frame) == name)

    def _number(self, frame: int) -> bytes:
        """Return the number of the page in a frame, as it is in the journal."""
        return os.pread(self._journal, 4, self._offset(frame))

    def _offset(self, frame: int) -> int:
        return _JOURNAL_HEADER + (frame - 1) * (_FRAME_HEADER + self._page_bytes)

    def _read_frame(self, frame: int) -> bytes:
        return os.pread(self._journal, self._page_bytes, self._offset(frame) + _FRAME_HEADER)

    def _read_page(self, number: int) -> bytes:
        # A page behind the end has zeros after a later one was moved.
        content = os.pread(self._file, self._page_bytes, (number - 1) * self._page_bytes)
        return content.ljust(self._page_bytes, b"\0")

    def _read_changed_at(self) -> int:
        return os.fstat(self._file).st_ctime_ns

    def _read_index(self) -> _Index:
        return _Index(*_INDEX.unpack(os.pread(self._shared, _INDEX.size, 0)))
