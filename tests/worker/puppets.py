"""Workers that tests control, and a lane with such workers, in virtual time."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from nodeguard.worker.lane import WorkerLane
from nodeguard.worker.process import WorkerProcess
from nodeguard.worker.progress import Deadlines
from nodeguard.worker.result import FileRequest, LaneResult


class Puppet(WorkerProcess):
    """A worker without process. obeys: whether SIGKILL ends it."""

    def __init__(self, *, obeys: bool = True) -> None:
        self.obeys = obeys
        self.requests: list[tuple[list[int], tuple[str, ...]]] = []
        self.closed = False
        self.done = False
        self._log_lines = b""
        self._exit: int | None = None
        self._ends = os.pipe()

    @property
    def descriptors(self) -> tuple[int, ...]:
        return self._ends[:1]

    def does(self, *lines: list[Any], over: bool = False) -> None:
        self.writes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        self.done = over

    def writes(self, raw: bytes) -> None:
        self._log_lines += raw

    def dies(self, status: int) -> None:
        self._exit = status

    def request(self, skip: list[int], mounts: tuple[str, ...], file: FileRequest | None = None) -> None:
        self.file = file
        self.requests.append((skip, mounts))

    def take_round_end(self) -> bool:
        done, self.done = self.done, False
        return done

    def status(self) -> int | None:
        return self._exit

    def read_log(self) -> bytes:
        news, self._log_lines = self._log_lines, b""
        return news

    def kill(self) -> None:
        if self.obeys and self._exit is None:
            self._exit = -9

    def close(self, grace: float) -> None:
        self.closed = True
        for end in self._ends:
            os.close(end)


class Stage:
    """A lane, its clock and the workers that it started."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.workers: list[Puppet] = []
        self.obeys = True
        self.lane = WorkerLane(
            self._start, Deadlines(call=5.0, first=30.0, grace=4.0), clock=lambda: self.now
        )

    def _start(self) -> Puppet:
        self.workers.append(Puppet(obeys=self.obeys))
        return self.workers[-1]

    @property
    def worker(self) -> Puppet:
        return self.workers[-1]

    def later(self, seconds: float) -> LaneResult | None:
        self.now += seconds
        return self.lane.step()
