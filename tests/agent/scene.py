"""Sources and a pipeline for tests, which record their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nodeguard.derive.derive import PlatformHints
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import DataStatus, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Signal
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import Machine

Read = Callable[[Machine], Iterator[Observation]]

# Seconds between two rounds of a source, or until an evaluation: longer than any test.
NEVER = 1e9


def workers() -> list[str]:
    """Return the worker processes of this process; a control plane of other tests may be its child too."""
    children = (child for task in Path("/proc/self/task").glob("*/children") for child in _read(task).split())
    return [child for child in children if "nodeguard.worker" in _read(Path("/proc", child, "cmdline"))]


def _read(file: Path) -> str:
    """Return the text of a file of a process; empty if the process or its thread has ended."""
    try:
        return file.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Scripted:
    """A source with a given read function, which counts its rounds."""

    paths: tuple[str, ...] = ()
    signals: dict[str, Signal] = {}  # noqa: RUF012 - the protocol's own type

    def __init__(
        self, name: str, read: Read | None = None, *, interval: float = 10.0, deadline: float = 5.0
    ) -> None:
        self.name, self.interval, self.deadline = name, interval, deadline
        self.paths = (f"/{name}",)
        self.rounds = 0
        self._read = read or (lambda _: iter([self.observation(n=1)]))

    def observation(self, slot: str = NODE, **signals: int) -> Observation:
        """An observation of this source."""
        return Observation(self.name, slot, signals=dict(signals))

    def read(self, machine: Machine) -> Iterator[Observation]:
        self.rounds += 1
        yield from self._read(machine)


class RecordingPipeline(Pipeline):
    """A pipeline that only records its calls: (seconds since boot, names of the sources)."""

    def __init__(self) -> None:
        super().__init__(Catalogue(), {}, PlatformHints())
        self.rounds: list[tuple[float, tuple[str, ...]]] = []

    def evaluate(self, readings: Sequence[Reading], instant: Instant) -> Verdict:
        self.rounds.append((instant.mono, tuple(reading.source for reading in readings)))
        return Verdict(Health.OK, DataStatus.FRESH, evaluated=len(self.rounds))
