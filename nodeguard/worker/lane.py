"""A lane: rounds of calls that may block, in a worker process of its own whose deadlines are kept here.

For a single look, `round` waits by itself. An event loop uses the same three parts: `begin`, then `step`
whenever `fileno` is readable or `look` has come, until there is an answer.
"""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Self

from msgspec.structs import replace

from nodeguard.worker.deadlines import Deadlines, RunPace
from nodeguard.worker.device_events import DeviceEventQueue
from nodeguard.worker.file_request import FileRequest
from nodeguard.worker.lane_state import Hang, Key, LaneState
from nodeguard.worker.process import WorkerProcess
from nodeguard.worker.progress import START, GarbledLogError, GroupResults, RunProgress
from nodeguard.worker.result import CallResult, LaneResult


def nvml_lane(
    library: str = "",
    root: str = "",
    deadlines: Deadlines | None = None,
    *,
    debug: bool = False,
    hang: Hang | None = None,
    events: DeviceEventQueue | None = None,
) -> WorkerLane:
    """The lane of NVML.

    library: path of libnvidia-ml, where it is known. root: where the host's root is mounted, in a container.
    debug: whether the worker's standard error is ours. hang: see Lane. events: takes what NVML tells unasked,
    from the end of the first round on, and is the caller's to close after the lane.
    """
    told = events.writable() if events else None
    return WorkerLane(
        partial(WorkerProcess, "nvml", library, root, debug=debug, events=told), deadlines, hang=hang
    )


def filesystem_lane(
    root: str = "", deadlines: Deadlines | None = None, *, debug: bool = False, hang: Hang | None = None
) -> WorkerLane:
    """The lane of file systems: mounts asked by statvfs, files of ours read and written.

    root, debug, hang: see nvml_lane; files of ours are not under root. A disk that hangs takes the lane with
    it, so whoever keeps files has one of its own.
    """
    return WorkerLane(partial(WorkerProcess, "filesystem", "", root, debug=debug), deadlines, hang=hang)


def _hung(answer: LaneResult) -> LaneResult:
    """An answer with a hang, told as ours where the worker hangs before its first call."""
    if answer.hung is None or answer.hung.call != START.call:
        return answer
    return replace(answer, hung=None, failed=_not_started(answer.hung))


def _not_started(call: CallResult) -> str:
    how = call.result["error"] if call.result else "no answer"
    return f"the worker process did not start ({how}): see that {sys.executable} can be run from here"


# pidfd_open came with Linux 5.3.
_REMEDY = "see that processes and memory are left, and that Linux is 5.3 or newer"

_CLOSED = LaneResult(failed="the reader was told to end")


class WorkerLane:
    """One worker process at a time, started when it is needed; never a second one behind one that hangs.

    Of one thread, except that another may close it while a round of the first is in flight.

    start: starts a worker; raises OSError where it cannot. clock: seconds, never jumps. hang: what a lane
    before this one hung in, in this boot: no worker is started behind that one's.
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
        self._memory = LaneState(hang)
        self._events = select.epoll()
        self._worker: WorkerProcess | None = None
        self._mounts: tuple[str, ...] = ()
        self._file: FileRequest | None = None
        self._leave: frozenset[int] = frozenset()
        self._round = self._memory.begin()
        self._told: GroupResults = {}
        self._progress = RunProgress()
        self._moved = 0.0
        self._killed: float | None = None
        self._until = math.inf
        self._cut = False
        self._garbled = ""
        self._closing = False
        self._in_round = threading.Lock()
        # Readable from the moment of closing on, so that a round in flight need not come to its end.
        self._closes = os.eventfd(0)
        self._events.register(self._closes, select.EPOLLIN)

    def round(
        self,
        mounts: tuple[str, ...] = (),
        within: float = math.inf,
        file: FileRequest | None = None,
        leave: frozenset[int] = frozenset(),
    ) -> LaneResult:
        """One round, from beginning to end; the parameters are those of `begin`."""
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
        """Begin a round, once the one before it has its answer. Returns an answer where none is to come.

        mounts: what to ask, in the lane of file systems. within: seconds after which nothing more is asked
        and the worker is killed; its end may take the deadlines' grace beside. file: what to do instead of
        asking mounts. leave: devices that are not to be touched.
        """
        hung = self._memory.hung(mounts)
        if hung is not None:
            if self._worker is not None:
                self._worker.status()  # so that one that ended after all is no zombie
            return _hung(LaneResult(hung=hung))
        self._mounts, self._file, self._leave = mounts, file, leave
        self._until = self._clock() + within
        self._round = self._memory.begin(mounts)
        return self._run()

    def fileno(self) -> int:
        """Readable when `step` has something to do; the same for as long as the lane lives."""
        return self._events.fileno()

    def next_check(self) -> float:
        """When to call `step` at the latest, by the lane's clock."""
        look = self._deadlines.next_check(self._pace(), self._clock())
        return look if self._killed is not None else min(look, self._until)

    def step(self) -> LaneResult | None:
        """Take what there is and kill what is overdue. Returns the answer once the round is over."""
        worker, now = self._worker, self._clock()
        assert worker is not None, "step comes after begin"
        # Asked in this order: whatever was written before the end is then sure to be read.
        over, status = worker.take_round_end(), worker.status()
        self._take(worker, now)
        run = self._progress
        match self._deadlines.status(self._pace(over=over, status=status), now):
            case "waiting" if self._killed is None and now >= self._until:
                self._cut = True
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
                return self._go_on(worker, replace(run.call, result={"error": f"worker died: {died}"}))
            case "stalled":
                return self._go_on(worker, run.call)
        return None

    @property
    def hang(self) -> Hang | None:
        """The call that the lane hangs in, for the rest of the boot."""
        return self._memory.hang

    def end_rest(self, key: Key | None = None) -> None:
        """End the rest of one device (by index) or mount (by path), or of all."""
        self._memory.end_rest(key)

    def stop_worker(self) -> None:
        """End the worker, once a round in flight is over; the next round starts another.

        What it held open is closed then. One that hangs is left behind.
        """
        with self._in_round:
            if self._worker is not None and self._memory.hang is None:
                self._drop(self._worker, self._deadlines.grace)

    def close(self, grace: float | None = None) -> None:
        """End the worker. One that hangs is left behind: nothing can end it.

        grace: seconds to wait for its end, those of the deadlines where it is None.

        A round in flight in another thread ends first, at once, with an answer that says so.
        """
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._closes, 1)
        with self._in_round:
            if self._worker is not None:
                wait = self._deadlines.grace if grace is None else grace
                self._worker.close(0.0 if self._memory.hung() else wait)
                self._worker = None
            self._events.close()
            os.close(self._closes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pace(self, *, over: bool = False, status: int | None = None) -> RunPace:
        return RunPace(self._progress.call.call, self._moved, self._killed, over, status)

    def _run(self) -> LaneResult | None:
        """Have a worker ask all that this round still wants."""
        if self._worker is not None and self._worker.status() is not None:
            self._drop(self._worker)
        if self._worker is None:
            self._told = {}  # another session's
        self._progress, self._moved, self._garbled = RunProgress(self._told), self._clock(), ""
        self._killed, self._cut = None, False
        try:
            worker = self._worker or self._start()
        except OSError as failed:
            return self._round.end(failed=f"the worker process cannot be started ({failed}): {_REMEDY}")
        if self._worker is None:
            self._worker = worker
            for descriptor in worker.descriptors:
                # Edges only: a worker that dies slowly would else keep its closed pipe readable meanwhile.
                self._events.register(descriptor, select.EPOLLIN | select.EPOLLET)
        worker.request(sorted(self._round.skip() | self._leave), self._mounts, self._file)
        return None

    def _take(self, worker: WorkerProcess, now: float) -> None:
        news = worker.read_log()
        if not news:
            return
        self._moved = now
        try:
            self._progress.feed(news)
        except GarbledLogError as garbled:
            self._garbled = self._garbled or str(garbled)
            self._kill(worker, now)

    def _kill(self, worker: WorkerProcess, now: float) -> None:
        worker.kill()
        self._killed = now if self._killed is None else self._killed

    def _go_on(self, worker: WorkerProcess, call: CallResult) -> LaneResult | None:
        self._drop(worker)
        if self._garbled:
            return LaneResult(failed=self._garbled)
        entries, started = self._progress.results, call.call != START.call
        if self._cut:
            slow = started and self._deadlines.is_slow(self._pace(), self._killed or 0.0)
            return self._round.interrupt(entries, call, slow=slow)
        if not started:
            return self._round.end(failed=_not_started(call))
        if not self._round.stall(entries, call):
            return self._round.end()
        return self._run() if self._clock() < self._until else self._round.interrupt((), call, slow=False)

    def _drop(self, worker: WorkerProcess, grace: float = 0.0) -> None:
        self._unwatch(worker)
        worker.close(grace)
        self._worker = None

    def _unwatch(self, worker: WorkerProcess) -> None:
        for descriptor in worker.descriptors:
            self._events.unregister(descriptor)
