"""RecordingMachine: a wrapper that records every reading of a machine, failures included, in a bundle."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import asdict

from nodeguard.bundle.failures import failure_name
from nodeguard.bundle.observed_tree import ReadFailure
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import Instant
from nodeguard.sources.disks import mapper_kind
from nodeguard.sources.machine import LogRecords, Machine, MetadataRequest, MetadataResponse
from nodeguard.sources.processes import parse_stat
from nodeguard.sources.readings import ABSENT
from nodeguard.sources.services import PROCESSES, relevant_names
from nodeguard.sources.vpd import public_vpd
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.result import LaneResult

Read = TypeVar("Read")

# Adds a reading to a bundle.
RecordedReading = Callable[[BundleWriter], None]


class RecordingMachine:
    """Reads another machine and records each result and each failure.

    record: receives each reading, in order, and has it added to a bundle, at once or later.
    recorded_processes: the names in /proc that the bundle holds, shared by all machines that record into it.
    """

    def __init__(
        self,
        machine: Machine,
        record: Callable[[RecordedReading], object],
        recorded_processes: set[str] | None = None,
    ) -> None:
        self._machine = machine
        self._record = record
        self._recorded_processes = set[str]() if recorded_processes is None else recorded_processes

    def now(self) -> Instant:
        """See Machine.now."""
        return self._machine.now()

    def read(self, path: str) -> str:
        """See Machine.read."""
        return self._recorded(self._machine.read, self._record_file, path)

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return self._recorded(self._machine.names, self._record_names, path)

    def link(self, path: str) -> str:
        """See Machine.link."""
        return self._recorded(self._machine.link, self._record_link, path)

    def _recorded(
        self, read: Callable[[str], Read], record: Callable[[str, Read | ReadFailure], None], path: str
    ) -> Read:
        try:
            result = read(path)
        except (OSError, UnansweredError) as error:
            record(path, error)
            raise
        record(path, result)
        return result

    def _record_file(self, path: str, result: str | ReadFailure) -> None:
        if _is_unrelated_process(path, result):
            return
        if path.startswith("/proc/"):
            name = path.split("/")[2]
            self._recorded_processes.add(self._machine.link("/proc/self") if name == "self" else name)
        relevant = _relevant_text(path, result) if isinstance(result, str) else result
        self._record(lambda writer: writer.file(path, relevant))

    def _record_link(self, path: str, result: str | ReadFailure) -> None:
        self._record(lambda writer: writer.link(path, result))

    def _record_names(self, path: str, result: tuple[str, ...] | ReadFailure) -> None:
        # Of the processes only those with a recorded file stay. From thread-self a reader concludes whether
        # it can see all processes.
        if path == "/proc" and isinstance(result, tuple):
            listed = self._recorded_processes | {"self", "thread-self"}
            result = tuple(name for name in result if name in listed)
        relevant = relevant_names(path, result) if isinstance(result, tuple) else result
        self._record(lambda writer: writer.names(path, relevant))

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        try:
            result = self._machine.call(name)
        except (OSError, UnansweredError) as error:
            self._record_call(name, {"error": failure_name(error)})
            raise
        self._record_call(name, result)
        return result

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """See Machine.http."""
        try:
            response = self._machine.http(request, within)
        except (OSError, UnansweredError) as error:
            self._record_call(request.call, {"error": failure_name(error)})
            raise
        self._record_call(request.call, asdict(response))
        return response

    def _record_call(self, call: str, result: dict[str, Any]) -> None:
        self._record(lambda writer: writer.call(call, result))

    def log(self, within: float = math.inf) -> LogRecords:
        """See Machine.log."""
        try:
            log = self._machine.log(within)
        except (OSError, UnansweredError) as error:
            self._record(partial(BundleWriter.log, result=error))
            raise
        self._record(lambda writer: writer.log(log.records))
        return log

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        """See Machine.statvfs."""
        result = self._machine.statvfs(mounts, within)
        for call in result.results:
            self._record_call(call.call, call.result)
        for call, failure in _unanswered(result):
            self._record_call(call.call, {"error": failure})
        return result

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        """See Machine.nvml."""
        result = self._machine.nvml(within, leave)
        if result.interrupted is not None or result.failed:
            # GPUs that were not reached would look like GPUs that are absent.
            self._record(lambda writer: writer.omit("nvml"))
        elif not result.missing:
            late = [(call.scope, call.call, {"error": failure}) for call, failure in _unanswered(result)]
            entries = [*((call.scope, call.call, call.result) for call in result.results), *late]
            self._record(lambda writer: writer.nvml(entries))
        return result

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        events = self._machine.nvml_events()
        for event in events:
            if event.device >= 0:
                self._record(
                    partial(BundleWriter.event, device=event.device, kind=event.type, data=event.data)
                )
        return events


def _unanswered(result: LaneResult) -> list[tuple[Any, str]]:
    stalled = [(call, "stall") for call in (*result.stalled, *result.skipped)]
    return stalled if result.hung is None else [*stalled, (result.hung, "hang")]


def _relevant_text(path: str, text: str) -> str:
    """Return the part of a file that a source uses, where the rest identifies the machine or its users."""
    if path.endswith("/vpd"):
        return public_vpd(text)
    if path.endswith("/dm/uuid"):
        kind = mapper_kind(text)
        return f"{kind}-\n" if kind else "\n"
    return text


def _is_unrelated_process(path: str, result: str | ReadFailure) -> bool:
    """Return whether a file belongs to a process that no source uses.

    Such a process has ended, or is neither blocked, nor a zombie, nor a watched service.
    """
    _, proc, pid, *rest = [*path.split("/"), "", ""]
    if proc != "proc" or not pid.isdigit() or pid in {"1", "2"}:
        return False
    if not isinstance(result, str):
        return isinstance(result, OSError) and result.errno in ABSENT
    if rest[:1] == ["comm"]:
        return result.strip() not in PROCESSES
    if rest[:1] != ["stat"]:
        return False
    try:
        process = parse_stat(result)
    except ValueError:
        return False
    return process.state not in {"D", "Z"} and process.comm not in PROCESSES
