"""Machines for tests: one made of dictionaries, and one that reads files of this machine."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation
from nodeguard.sources.machine import (
    READ_LIMIT,
    LogRecords,
    MetadataRequest,
    MetadataResponse,
    recorded_response,
)
from nodeguard.sources.source import Source
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.result import CallResult, LaneResult


class FakeMachine:
    """Files, links and errors by path; a directory is a path with paths below it, or a listed one.

    A link's path can have files below it, as if they were reached through it. errors: errno or exception by
    path, for any way of asking. calls: answers by name. answer: what statvfs gives, else one made from the
    calls named `statvfs(…)`. asked: each path, in the order of asking.
    """

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        links: Mapping[str, str] | None = None,
        directories: Sequence[str] = (),
        errors: Mapping[str, int | Exception] | None = None,
        calls: Mapping[str, Any] | None = None,
        answer: LaneResult | None = None,
    ) -> None:
        self.files = dict(files or {})
        self.links = dict(links or {})
        self.directories = list(directories)
        self.errors = dict(errors or {})
        self.calls = dict(calls or {})
        self.answer = answer
        self.instant = Instant(wall=1_800_000_000.0, mono=1000.0, boot_id="boot-1")
        self.asked: list[str] = []

    def now(self) -> Instant:
        return self.instant

    def read(self, path: str) -> str:
        self._ask(path)
        if path not in self.files:
            raise self._missing(path)
        return self.files[path]

    def names(self, path: str) -> tuple[str, ...]:
        self._ask(path)
        below = {
            existing[len(path) + 1 :].split("/")[0]
            for existing in (*self.files, *self.links, *self.directories, *self.errors)
            if existing.startswith(path + "/")
        }
        if not below and path not in self.directories:
            raise self._missing(path)
        return tuple(sorted(below))

    def link(self, path: str) -> str:
        self._ask(path, f"link {path}")
        if path not in self.links:
            raise self._missing(path)
        return self.links[path]

    def call(self, name: str) -> dict[str, Any]:
        self._ask(f"call:{name}")
        answer = self.calls[name]
        assert isinstance(answer, dict)
        return answer

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        self._ask(request.call)
        return recorded_response(self.calls.get(request.call), request.call)

    def log(self, within: float = math.inf) -> LogRecords:
        raise AssertionError("this machine has no kernel log")

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        if self.answer is not None:
            return self.answer
        calls = [f"statvfs({mount})" for mount in mounts]
        return LaneResult(
            tuple(
                CallResult(i, call, self.calls.get(call, {"error": "ENOENT"})) for i, call in enumerate(calls)
            )
        )

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        raise AssertionError("this machine has no NVML")

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        raise AssertionError("this machine has no NVML")

    def later(self, seconds: float) -> None:
        """Let time pass."""
        old = self.instant
        self.instant = Instant(old.wall + seconds, old.mono + seconds, old.boot_id)

    def remove(self, prefix: str) -> None:
        """Remove all entries at a path or below."""
        for existing in (self.files, self.links, self.errors):
            for path in [path for path in existing if path == prefix or path.startswith(prefix + "/")]:
                del existing[path]

    def _ask(self, path: str, asked: str = "") -> None:
        self.asked.append(asked or path)
        error = self.errors.get(path)
        if isinstance(error, int):
            raise OSError(error, os.strerror(error), path)
        if error is not None:
            raise error

    def _missing(self, path: str) -> OSError:
        return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


class ThisMachine(FakeMachine):
    """This very machine, as far as a source without lanes needs it."""

    def read(self, path: str) -> str:
        with open(path, "rb") as file:
            return file.read(READ_LIMIT).decode(errors="replace")

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(os.listdir(path)))

    def link(self, path: str) -> str:
        return os.readlink(path)

    def call(self, name: str) -> dict[str, Any]:
        return {"status": 0x40, "offset_us": 0, "maxerror_us": 16_000_000, "esterror_us": 0, "state": 5}

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        # Only the root: any other mount may hang, and there is no lane in between.
        fields = ("f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")
        root = os.statvfs("/")
        return LaneResult(
            (CallResult(mounts.index("/"), "statvfs(/)", {field: getattr(root, field) for field in fields}),)
        )


def by_target(source: Source, machine: FakeMachine) -> dict[str, Observation]:
    """Return the observations of one round, by target. Asserts the properties that every round must have."""
    round_ = list(source.read(machine))
    observations = {observation.target: observation for observation in round_}
    assert len(observations) == len(round_), "a target has two observations"
    for observation in round_:
        assert observation.source == source.name
        assert not observation.signals.keys() & observation.unreadable.keys(), observation
        assert observation.signals.keys() | observation.unreadable.keys() <= source.signals.keys(), (
            observation
        )
    return observations
