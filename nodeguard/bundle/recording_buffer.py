"""RecordingBuffer: readings of one round of one source, kept until the round is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nodeguard.bundle.observed_tree import ReadFailure
from nodeguard.bundle.writer import BundleWriter


class RecordingBuffer:
    """Takes the same readings as a BundleWriter, and passes them to a writer later, in the same order.

    A source reads in a thread of its own, which may still run when the bundle is written. So each round has a
    buffer, and only the buffer of a finished round reaches the bundle.
    """

    def __init__(self) -> None:
        self._readings: list[Callable[[BundleWriter], None]] = []

    def replay_to(self, writer: BundleWriter) -> None:
        """Pass all readings to a writer."""
        for reading in self._readings:
            reading(writer)

    def file(self, path: str, result: str | ReadFailure) -> None:
        """See BundleWriter.file."""
        self._readings.append(lambda writer: writer.file(path, result))

    def link(self, path: str, result: str | ReadFailure) -> None:
        """See BundleWriter.link."""
        self._readings.append(lambda writer: writer.link(path, result))

    def names(self, path: str, result: Iterable[str] | ReadFailure) -> None:
        """See BundleWriter.names."""
        self._readings.append(lambda writer: writer.names(path, result))

    def call(self, call: str, answer: dict[str, Any]) -> None:
        """See BundleWriter.call."""
        self._readings.append(lambda writer: writer.call(call, answer))

    def nvml(self, entries: Iterable[tuple[int, str, Any]]) -> None:
        """See BundleWriter.nvml."""
        self._readings.append(lambda writer: writer.nvml(entries))

    def event(self, device: int, kind: int, data: int) -> None:
        """See BundleWriter.event."""
        self._readings.append(lambda writer: writer.event(device, kind, data))

    def log(self, result: Iterable[str] | ReadFailure) -> None:
        """See BundleWriter.log."""
        self._readings.append(lambda writer: writer.log(result))

    def omit(self, source: str) -> None:
        """See BundleWriter.omit."""
        self._readings.append(lambda writer: writer.omit(source))
