"""Lines of a body that comes in pieces. Pure."""

from __future__ import annotations

from collections.abc import Iterator


class LineTooLongError(Exception):
    """A line longer than is taken."""


class Lines:
    """Puts pieces together to lines of at most `most` bytes; holds the unfinished one alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: list[bytes] = []
        self._length = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that a piece ends, without the empty ones. Raises LineTooLongError."""
        first, *rest = piece.split(b"\n")
        self._begin(first)
        for part in rest:
            line = b"".join(self._begun)
            self._begun, self._length = [], 0
            if line:
                yield line
            self._begin(part)

    def _begin(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > self._most:
            raise LineTooLongError
        if part:
            self._begun.append(part)
