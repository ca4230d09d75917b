"""A recorded machine, read through the same calls as a live one, in virtual time."""

from __future__ import annotations

import math
from typing import Any

from nodeguard.bundle.failing import failure
from nodeguard.bundle.kmsg import KMSG
from nodeguard.bundle.recording import Recording
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import Log
from nodeguard.sources.request import Request, Response, replayed
from nodeguard.worker.answer import Answer
from nodeguard.worker.memory import Memory
from nodeguard.worker.rehearsal import rehearse_nvml, rehearse_statvfs


class ReplayMachine:
    """The machine of a recording, at the second that `seek` was last given.

    A new boot has forgotten what its lanes knew, as the workers of a live machine would have ended with it.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._at = 0.0
        self._moment = recording.at(0.0)
        self._logged = -math.inf
        self._told = -math.inf
        self._gpus = Memory()
        self._filesystems = Memory()

    def seek(self, seconds: float) -> None:
        """Move to so many seconds after the beginning, never back."""
        boot_id = self._moment.instant.boot_id
        self._at = seconds
        self._moment = self._recording.at(seconds)
        if self._moment.instant.boot_id != boot_id:
            self._gpus, self._filesystems = Memory(), Memory()

    def now(self) -> Instant:
        """See Machine.now."""
        return self._moment.instant

    def read(self, path: str) -> str:
        """See Machine.read."""
        return self._moment.read(path)

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return self._moment.tree.names(path)

    def link(self, path: str) -> str:
        """See Machine.link."""
        return self._moment.tree.link(path)

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        answer = self._moment.calls.get(name, {"error": "ENOSYS"})
        if "error" in answer:
            raise failure(answer["error"], name)
        return answer

    def http(self, request: Request, within: float) -> Response:  # noqa: ARG002
        """See Machine.http."""
        return replayed(self._moment.calls.get(request.call), request.call)

    def log(self, within: float = math.inf) -> Log:  # noqa: ARG002 - virtual time stands still meanwhile
        """See Machine.log."""
        word = self._moment.tree.errors.get(KMSG)
        if word is not None:
            raise failure(word, KMSG)
        records = self._recording.log(self._at, self._logged)
        self._logged = self._at
        return Log(records)

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> Answer:  # noqa: ARG002
        """See Machine.statvfs."""
        return rehearse_statvfs(self._filesystems, self._moment.calls, mounts)

    def nvml(self, within: float = math.inf) -> Answer:  # noqa: ARG002
        """See Machine.nvml."""
        return rehearse_nvml(self._gpus, self._moment.nvml)

    def nvml_events(self) -> tuple[dict[str, int], ...]:
        """See Machine.nvml_events."""
        events = self._recording.nvml_events(self._at, self._told)
        self._told = self._at
        return tuple({"device": event.device, "type": event.type, "data": event.data} for event in events)
