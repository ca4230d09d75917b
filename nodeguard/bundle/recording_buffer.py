"""What one round of one source tells a recording, kept until the round is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nodeguard.bundle.observed_tree import ReadFailure
from nodeguard.bundle.writer import BundleWriter


class RecordingBuffer:
    """Takes what a BundleWriter takes, and tells it to one later, in the same order.

    A source reads in a thread of its own, which may still go on when its bundle is written: so a round tells
    its own tale, and only that of a round that is over reaches the bundle.
    """

    def __init__(self) -> None:
        self._told: list[Callable[[BundleWriter], None]] = []

    def replay_to(self, writer: BundleWriter) -> None:
        """Tell it all."""
        for told in self._told:
            told(writer)

    def file(self, path: str, said: str | ReadFailure) -> None:
        """See BundleWriter.file."""
        self._told.append(lambda writer: writer.file(path, said))

    def link(self, path: str, said: str | ReadFailure) -> None:
        """See BundleWriter.link."""
        self._told.append(lambda writer: writer.link(path, said))

    def names(self, path: str, said: Iterable[str] | ReadFailure) -> None:
        """See BundleWriter.names."""
        self._told.append(lambda writer: writer.names(path, said))

    def call(self, call: str, answer: dict[str, Any]) -> None:
        """See BundleWriter.call."""
        self._told.append(lambda writer: writer.call(call, answer))

    def nvml(self, entries: Iterable[tuple[int, str, Any]]) -> None:
        """See BundleWriter.nvml."""
        self._told.append(lambda writer: writer.nvml(entries))

    def event(self, device: int, kind: int, data: int) -> None:
        """See BundleWriter.event."""
        self._told.append(lambda writer: writer.event(device, kind, data))

    def log(self, said: Iterable[str] | ReadFailure) -> None:
        """See BundleWriter.log."""
        self._told.append(lambda writer: writer.log(said))

    def omit(self, source: str) -> None:
        """See BundleWriter.omit."""
        self._told.append(lambda writer: writer.omit(source))
