"""A recorded machine, read through the same calls as a live one, in virtual time."""

from __future__ import annotations

import math
from typing import Any

from nodeguard.bundle.failing import failure
from nodeguard.bundle.kmsg import KMSG
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import Moment, Recording
from nodeguard.model.instant import Instant
from nodeguard.sources.kernel_log import after, sequence
from nodeguard.sources.machine import Cursor, Hangs, Log
from nodeguard.sources.request import Request, Response, replayed
from nodeguard.worker.answer import Answer
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.memory import Memory
from nodeguard.worker.rehearsal import rehearse_nvml, rehearse_statvfs


class ReplayMachine:
    """The machine of a recording, at the second that `seek` was last given.

    began: second of the recording in which the reader began, who knows nothing of NVML's events until then;
    the beginning where it is None.
    logged, hung: what a reader before this one has left, see LiveMachine.

    A new boot has forgotten what its lanes knew, as the workers of a live machine would have ended with it.
    """

    def __init__(
        self,
        recording: Recording,
        began: float | None = None,
        logged: Cursor | None = None,
        hung: Hangs | None = None,
    ) -> None:
        self._recording = recording
        self._at = 0.0
        self._moment = recording.at(began or 0.0)
        self._logged = -math.inf
        self._told = -math.inf if began is None else began
        self._cursor = logged
        self._last = logged
        hung = hung or Hangs()
        self._gpus = Memory(hung.nvml)
        self._filesystems = Memory(hung.filesystem)

    def seek(self, seconds: float) -> None:
        """Move to so many seconds after the beginning, never back."""
        boot_id = self._moment.instant.boot_id
        self._at = seconds
        self._moment = self._recording.at(seconds)
        if self._moment.instant.boot_id != boot_id:
            self._gpus, self._filesystems = Memory(), Memory()

    def moment(self) -> Moment:
        """What is there to be read."""
        return self._moment

    def now(self) -> Instant:
        """See Machine.now."""
        return self._moment.instant

    def read(self, path: str) -> str:
        """See Machine.read."""
        return self.moment().read(path)

    def names(self, path: str) -> tuple[str, ...]:
        """See Machine.names."""
        return self.moment().tree.names(path)

    def link(self, path: str) -> str:
        """See Machine.link."""
        return self.moment().tree.link(path)

    def call(self, name: str) -> dict[str, Any]:
        """See Machine.call."""
        answer = self.moment().calls.get(name, {"error": "ENOSYS"})
        if "error" in answer:
            raise failure(answer["error"], name)
        return answer

    def http(self, request: Request, within: float) -> Response:  # noqa: ARG002
        """See Machine.http."""
        return replayed(self.moment().calls.get(request.call), request.call)

    def log(self, within: float = math.inf) -> Log:  # noqa: ARG002 - virtual time stands still meanwhile
        """See Machine.log."""
        word = self.moment().tree.errors.get(KMSG)
        if word is not None:
            raise failure(word, KMSG)
        boot_id = self._moment.instant.boot_id
        skip = after(self._cursor, boot_id)
        new = self._recording.log(self._at, self._logged)
        records = tuple(record for record in new if not 0 <= sequence(record) <= skip)
        self._logged = self._at
        last = max((after(self._last, boot_id), *map(sequence, records)))
        self._last = Cursor(boot_id, last)
        return Log(records, last=last)

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> Answer:  # noqa: ARG002
        """See Machine.statvfs."""
        return rehearse_statvfs(self._filesystems, self.moment().calls, mounts)

    def nvml(
        self,
        within: float = math.inf,  # noqa: ARG002
        leave: frozenset[int] = frozenset(),
    ) -> Answer:
        """See Machine.nvml."""
        return rehearse_nvml(self._gpus, self.moment().nvml, leave)

    def let_go_of_gpus(self) -> None:
        """Nothing is held open of what is recorded."""

    def hangs(self) -> Hangs:
        """What the lanes hang in, for whoever reads this machine next in this boot."""
        return Hangs(self._gpus.hang, self._filesystems.hang)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        """See Machine.nvml_events."""
        events = self._recording.nvml_events(self._at, self._told)
        self._told = self._at
        return tuple(map(told, events))


def told(event: NvmlEvent) -> DeviceEvent:
    """A recorded event in the form of Machine.nvml_events."""
    return DeviceEvent(event.device, event.type, event.data)
