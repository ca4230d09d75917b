from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from nodeguard.worker.device_events import DeviceEventQueue
from nodeguard.worker.process import WorkerProcess
from tests.waiting import PATIENCE


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess("filesystem")
    try:
        yield worker
    finally:
        worker.close(5.0)


def _wait(descriptor: int) -> None:
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    assert ready.poll(PATIENCE * 1000)


def _round(worker: WorkerProcess) -> bytes:
    worker.request([], ("/",))
    _wait(worker._done)
    assert worker.take_round_end()
    return worker.read_log()


def test_the_log_has_each_call_before_and_after(worker: WorkerProcess) -> None:
    before, after = _round(worker).splitlines()
    assert before == b'[0,"statvfs(/)"]'
    assert after.startswith(b'[0,{"statvfs(/)":{"f_frsize":')
    assert worker.read_log() == b""
    assert _round(worker).splitlines()[0] == before, "each round has a log of its own"


def test_a_round_is_over_once(worker: WorkerProcess) -> None:
    _round(worker)
    assert not worker.take_round_end()


def test_only_the_library_path_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    leaked = os.open("/", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    worker = WorkerProcess("filesystem")
    try:
        _round(worker)
        directory = f"/proc/{worker._pid}"
        shown = {int(name): os.readlink(f"{directory}/fd/{name}") for name in os.listdir(f"{directory}/fd")}
        assert sorted(shown) == [0, 1, 2, 3]
        assert shown[2] == os.devnull
        with open(f"{directory}/environ", "rb") as environment:
            assert environment.read() == b"LD_LIBRARY_PATH=/opt/python/lib\0"
        assert os.getpgid(worker._pid) == worker._pid
    finally:
        worker.close(5.0)
        os.close(leaked)


def test_a_worker_with_events_has_a_further_descriptor() -> None:
    events = DeviceEventQueue()
    worker = WorkerProcess("nvml", "/nonexistent", events=events.writable())
    try:
        assert b"missing" in _round(worker)
        assert sorted(map(int, os.listdir(f"/proc/{worker._pid}/fd"))) == [0, 1, 2, 3, 4]
    finally:
        worker.close(5.0)
        events.close()


def test_descriptors_of_the_worker_may_be_free_in_the_parent() -> None:
    """A daemon may have closed its standard ones: the pipes then get their numbers."""
    copy = os.dup(0)
    os.close(0)
    try:
        worker = WorkerProcess("filesystem")
        try:
            assert _round(worker)
        finally:
            worker.close(5.0)
    finally:
        os.dup2(copy, 0)
        os.close(copy)


def test_the_worker_exits_when_the_parent_closes_the_pipe(worker: WorkerProcess) -> None:
    _round(worker)
    pipe = worker._rounds
    worker._rounds = os.dup(worker._log)
    os.close(pipe)
    _wait(worker._pidfd)
    assert worker.status() == 0


def test_a_request_to_an_ended_worker_is_harmless(worker: WorkerProcess) -> None:
    _round(worker)
    worker.kill()
    _wait(worker._pidfd)
    assert worker.status() == -9
    worker.request([], ())
    worker.kill()
    assert not worker.take_round_end()


def test_close_leaves_nothing() -> None:
    open_before = set(os.listdir("/proc/self/fd"))
    worker = WorkerProcess("filesystem")
    _round(worker)
    worker.close(5.0)
    assert set(os.listdir("/proc/self/fd")) == open_before
    with pytest.raises(ProcessLookupError):
        os.kill(worker._pid, 0)


def test_a_missing_interpreter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    open_before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(FileNotFoundError):
        WorkerProcess("filesystem")
    assert set(os.listdir("/proc/self/fd")) == open_before
