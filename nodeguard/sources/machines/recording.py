"""A machine that tells a recording of all that is read of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import asdict

from nodeguard.bundle.failures import failure_name
from nodeguard.bundle.observed_tree import ReadFailure
from nodeguard.bundle.recording_buffer import RecordingBuffer
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import LogRecords, Machine
from nodeguard.sources.processes import parse_stat
from nodeguard.sources.readings import ABSENT
from nodeguard.sources.request import MetadataRequest, MetadataResponse
from nodeguard.sources.services import PROCESSES
from nodeguard.sources.services import relevant_names as services_of
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.result import LaneResult

Read = TypeVar("Read")


class RecordingMachine:
    """Another machine, read through this one: what it answers, and how it fails, goes into a bundle.

    in_proc: the processes that the bundle knows of, shared by all that tell it.
    """

    def __init__(
        self, machine: Machine, writer: BundleWriter | RecordingBuffer, in_proc: set[str] | None = None
    ) -> None:
        self._machine = machine
        self._writer = writer
        self._in_proc = set[str]() if in_proc is None else in_proc

    def now(self) -> Instant:
        """See Machine.now."""
        return self._machine.now()

    def read(self, path: str) -> str:
        """See Machine.read."""
        return self._told(self._machine.read, self._tell_file, path)

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return self._told(self._machine.names, self._tell_names, path)

    def _tell_file(self, path: str, said: str | ReadFailure) -> None:
        if _is_bystander(path, said):
            return
        if path.startswith("/proc/"):
            name = path.split("/")[2]
            self._in_proc.add(self._machine.link("/proc/self") if name == "self" else name)
        self._writer.file(path, said)

    def _tell_names(self, path: str, said: tuple[str, ...] | ReadFailure) -> None:
        # Of the processes there remain those of which something was told. By thread-self a reader knows
        # whether it is shown all of them.
        if path == "/proc" and isinstance(said, tuple):
            said = tuple(name for name in said if name in self._in_proc or name in {"self", "thread-self"})
        if isinstance(said, tuple):
            said = services_of(path, said)
        self._writer.names(path, said)

    def link(self, path: str) -> str:
        """See Machine.link."""
        return self._told(self._machine.link, self._writer.link, path)

    def _told(
        self, ask: Callable[[str], Read], tell: Callable[[str, Read | ReadFailure], None], path: str
    ) -> Read:
        try:
            said = ask(path)
        except (OSError, UnansweredError) as error:
            tell(path, error)
            raise
        tell(path, said)
        return said

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        try:
            answer = self._machine.call(name)
        except (OSError, UnansweredError) as error:
            self._writer.call(name, {"error": failure_name(error)})
            raise
        self._writer.call(name, answer)
        return answer

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """See Machine.http."""
        try:
            response = self._machine.http(request, within)
        except (OSError, UnansweredError) as error:
            self._writer.call(request.call, {"error": failure_name(error)})
            raise
        self._writer.call(request.call, asdict(response))
        return response

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log."""
        try:
            log = self._machine.log(within)
        except (OSError, UnansweredError) as error:
            self._writer.log(error)
            raise
        self._writer.log(log.records)
        return log

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """See Machine.statvfs."""
        answer = self._machine.statvfs(mounts, within)
        for entry in answer.results:
            self._writer.call(entry.call, entry.result)
        for entry, word in _unanswered(answer):
            self._writer.call(entry.call, {"error": word})
        return answer

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """See Machine.nvml."""
        answer = self._machine.nvml(within, leave)
        if answer.interrupted is not None or answer.failed:
            # GPUs that were not reached would pass for GPUs that are not there.
            self._writer.omit("nvml")
        elif not answer.missing:
            late = [(entry.scope, entry.call, {"error": word}) for entry, word in _unanswered(answer)]
            self._writer.nvml([*((entry.scope, entry.call, entry.result) for entry in answer.results), *late])
        return answer

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        events = self._machine.nvml_events()
        for event in events:
            if event.device >= 0:
                self._writer.event(event.device, event.type, event.data)
        return events


def _unanswered(answer: LaneResult) -> list[tuple[Any, str]]:
    late = [(entry, "stall") for entry in (*answer.stalled, *answer.resting)]
    return late if answer.hung is None else [*late, (answer.hung, "hang")]


def _is_bystander(path: str, said: str | ReadFailure) -> bool:
    """Whether a file is of a process that no source asks for: it has ended, or is neither stuck, nor a
    zombie, nor a known service.
    """
    _, proc, pid, *rest = [*path.split("/"), "", ""]
    if proc != "proc" or not pid.isdigit() or pid == "1":
        return False
    if not isinstance(said, str):
        return isinstance(said, OSError) and said.errno in ABSENT
    if rest[:1] == ["comm"]:
        return said.strip() not in PROCESSES
    try:
        process = parse_stat(said)
    except ValueError:
        return False
    return process.state not in {"D", "Z"} and process.comm not in PROCESSES
