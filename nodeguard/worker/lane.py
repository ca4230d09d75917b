"""WorkerLane: rounds of calls that may block, in one worker process, with the deadlines that it enforces.

`round` waits for the result. An event loop uses its parts: `begin`, then `step` whenever `fileno` is readable
or the time `next_check` has come, until there is a result.
"""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from errno import EACCES
from functools import partial
from typing import Self

from msgspec.structs import replace

from nodeguard.worker.device_events import DeviceEventQueue
from nodeguard.worker.lane_state import Hang, LaneState
from nodeguard.worker.process import WorkerProcess
from nodeguard.worker.progress import START, Deadlines, GarbledLogError, GroupResults, RunPace, RunProgress
from nodeguard.worker.result import CallResult, FileRequest, LaneResult


def nvml_lane(
    library: str = "",
    root: str = "",
    deadlines: Deadlines | None = None,
    *,
    hang: Hang | None = None,
    events: DeviceEventQueue | None = None,
) -> WorkerLane:
    """Return the NVML lane.

    library: path of libnvidia-ml, if known. root: where the host's root is mounted, in a container. hang: see
    WorkerLane. events: receives NVML events after the first round; the caller closes it after the lane.
    """
    pipe = events.writable() if events else None
    return WorkerLane(partial(WorkerProcess, "nvml", library, root, events=pipe), deadlines, hang=hang)


def filesystem_lane(
    root: str = "", deadlines: Deadlines | None = None, *, hang: Hang | None = None
) -> WorkerLane:
    """Return a file-system lane: statvfs of mounts; files of the agent are read and written.

    root, hang: see nvml_lane; the agent's own files are not under root. A disk that hangs blocks its
    lane, so the agent's files need a lane of their own.
    """
    return WorkerLane(partial(WorkerProcess, "filesystem", "", root), deadlines, hang=hang)


def _hung(answer: LaneResult) -> LaneResult:
    """Return a result with a hang; if the worker hangs before its first call, as a failure of nodeguard."""
    if answer.hung is None or answer.hung.call != START.call:
        return answer
    return replace(answer, hung=None, failed=_not_started(answer.hung))


def _not_started(call: CallResult) -> str:
    how = call.result["error"] if call.result else "no answer"
    return f"the worker process did not start ({how}): see that {sys.executable} can be run from here"


# pidfd_open came with Linux 5.3.
_REMEDY = "see that processes and memory are left, and that Linux is 5.3 or newer"

_CLOSED = LaneResult(failed="the reader was closed")


class WorkerLane:
    """One worker process at a time, started on demand; never a second one while one hangs.

    For one thread, except that another thread may close it during a round.

    start: starts a worker; raises OSError if it cannot. clock: monotonic, in seconds. hang: the hung call of
    an
    earlier lane in this boot: this lane then starts no worker.
    """

    def __init__(
        self,
        start: Callable[[], WorkerProcess],
        deadlines: Deadlines | None = None,
        clock: Callable[[], float] = time.monotonic,
        hang: Hang | None = None,
    ) -> None:
        self._start = start
        self._deadlines = deadlines or Deadlines()
        self._clock = clock
        self._state = LaneState(hang)
        self._events = select.epoll()
        self._worker: WorkerProcess | None = None
        self._mounts: tuple[str, ...] = ()
        self._file: FileRequest | None = None
        self._leave: frozenset[int] = frozenset()
        self._round = self._state.begin()
        self._group_results: GroupResults = {}
        self._progress = RunProgress()
        self._last_progress = 0.0
        self._killed: float | None = None
        self._until = math.inf
        self._interrupted = False
        self._garbled = ""
        self._closing = False
        self._in_round = threading.Lock()
        # Readable after close, so that a round in progress ends at once.
        self._closes = os.eventfd(0)
        self._events.register(self._closes, select.EPOLLIN)

    def round(
        self,
        mounts: tuple[str, ...] = (),
        within: float = math.inf,
        file: FileRequest | None = None,
        leave: frozenset[int] = frozenset(),
    ) -> LaneResult:
        """Make one round and wait for its result; the parameters are those of `begin`."""
        with self._in_round:
            answer = _CLOSED if self._closing else self.begin(mounts, within, file, leave)
            while answer is None:
                self._events.poll(max(0.0, self.next_check() - self._clock()))
                answer = _CLOSED if self._closing else self.step()
            return answer

    def begin(
        self,
        mounts: tuple[str, ...] = (),
        within: float = math.inf,
        file: FileRequest | None = None,
        leave: frozenset[int] = frozenset(),
    ) -> LaneResult | None:
        """Begin a round, after the result of the last one. Return a result if the round ends at once.

        mounts: mount points for statvfs, in a file-system lane. within: seconds after which the lane makes no
        more calls and kills the worker; its end may take the grace of the deadlines in addition. file: a file
        operation instead of statvfs. leave: devices that the round must not touch.
        """
        hung = self._state.hung(mounts)
        if hung is not None:
            if self._worker is not None:
                self._worker.status()  # a worker that ended after all must not stay a zombie
            return _hung(LaneResult(hung=hung))
        self._mounts, self._file, self._leave = mounts, file, leave
        self._until = self._clock() + within
        self._round = self._state.begin(mounts)
        return self._run()

    def fileno(self) -> int:
        """Return a descriptor that is readable when `step` has work; it stays the same until close."""
        return self._events.fileno()

    def next_check(self) -> float:
        """Return when to call `step` at the latest, by the lane's clock."""
        look = self._deadlines.next_check(self._pace(), self._clock())
        return look if self._killed is not None else min(look, self._until)

    def step(self) -> LaneResult | None:
        """Read the progress and kill an overdue worker. Return the result when the round has ended."""
        worker, now = self._worker, self._clock()
        assert worker is not None, "step comes after begin"
        # In this order, everything that was written before the end is read.
        over, status = worker.take_round_end(), worker.status()
        self._read_progress(worker, now)
        run = self._progress
        match self._deadlines.status(self._pace(over=over, status=status), now):
            case "waiting" if self._killed is None and now >= self._until:
                self._interrupted = True
                self._kill(worker, now)
            case "overdue":
                self._kill(worker, now)
            case "over":
                if status is not None:
                    self._drop(worker)
                return self._round.end(run.results, run.missing, run.failed)
            case "hung":
                self._unwatch(worker)
                return _hung(self._round.hang(run.results, run.call))
            case "died":
                died = f"signal {-status}" if status and status < 0 else f"exit status {status}"
                return self._continue(worker, replace(run.call, result={"error": f"worker died: {died}"}))
            case "stalled":
                return self._continue(worker, run.call)
        return None

    @property
    def hang(self) -> Hang | None:
        """The call in which the lane hangs for the rest of the boot."""
        return self._state.hang

    def stop_worker(self, *, ends_stalls: bool = False) -> None:
        """Stop the worker, after a round in progress has ended; the next round starts another.

        This closes its devices. ends_stalls: whether the next round calls stalled devices again. A worker
        that hangs stays.
        """
        with self._in_round:
            if ends_stalls:
                self._state.end_stalls()
            if self._worker is not None and self._state.hang is None:
                self._drop(self._worker, self._deadlines.grace)

    def close(self, grace: float | None = None) -> None:
        """Stop the worker. A worker that hangs stays: nothing can end it.

        grace: seconds to wait for its end; None for the grace of the deadlines. A round in progress in
        another thread ends at once, with a failed result.
        """
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._closes, 1)
        with self._in_round:
            if self._worker is not None:
                wait = self._deadlines.grace if grace is None else grace
                self._worker.close(0.0 if self._state.hung() else wait)
                self._worker = None
            self._events.close()
            os.close(self._closes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pace(self, *, over: bool = False, status: int | None = None) -> RunPace:
        return RunPace(self._progress.call.call, self._last_progress, self._killed, over, status)

    def _run(self) -> LaneResult | None:
        """Let a worker make all calls that this round still needs."""
        if self._worker is not None and self._worker.status() is not None:
            self._drop(self._worker)
        if self._worker is None:
            self._group_results = {}  # results of another NVML session
        self._progress, self._last_progress, self._garbled = (
            RunProgress(self._group_results),
            self._clock(),
            "",
        )
        self._killed, self._interrupted = None, False
        try:
            worker = self._worker or self._start()
        except OSError as error:
            remedy = "let this user run that file" if error.errno == EACCES else _REMEDY
            return self._round.end(failed=f"the worker process cannot be started ({error}): {remedy}")
        if self._worker is None:
            self._worker = worker
            for descriptor in worker.descriptors:
                # Edge-triggered: the closed pipe of a slowly dying worker would otherwise stay readable.
                self._events.register(descriptor, select.EPOLLIN | select.EPOLLET)
        worker.request(sorted(self._round.skip() | self._leave), self._mounts, self._file)
        return None

    def _read_progress(self, worker: WorkerProcess, now: float) -> None:
        data = worker.read_log()
        if not data:
            return
        self._last_progress = now
        try:
            self._progress.feed(data)
        except GarbledLogError as error:
            self._garbled = self._garbled or str(error)
            self._kill(worker, now)

    def _kill(self, worker: WorkerProcess, now: float) -> None:
        worker.kill()
        self._killed = now if self._killed is None else self._killed

    def _continue(self, worker: WorkerProcess, call: CallResult) -> LaneResult | None:
        self._drop(worker)
        if self._garbled:
            return LaneResult(failed=self._garbled)
        results, started = self._progress.results, call.call != START.call
        if self._interrupted:
            slow = started and self._deadlines.is_slow(self._pace(), self._killed or 0.0)
            return self._round.interrupt(results, call, slow=slow)
        if not started:
            return self._round.end(failed=_not_started(call))
        if not self._round.stall(results, call):
            return self._round.end()
        return self._run() if self._clock() < self._until else self._round.interrupt((), call, slow=False)

    def _drop(self, worker: WorkerProcess, grace: float = 0.0) -> None:
        self._unwatch(worker)
        worker.close(grace)
        self._worker = None

    def _unwatch(self, worker: WorkerProcess) -> None:
        for descriptor in worker.descriptors:
            self._events.unregister(descriptor)
