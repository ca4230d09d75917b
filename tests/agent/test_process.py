from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeguard.agent.process import log_loop_error, notify_systemd, watchdog_interval
from tests.logs import LogLines
from tests.waiting import PATIENCE


def test_an_error_of_the_event_loop_is_logged_once(log: LogLines) -> None:
    loop: Any = None
    for _ in range(3):
        log_loop_error(
            loop, {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many open files")}
        )
    log_loop_error(loop, {"message": "a task", "exception": KeyError("x")})
    assert [(line["msg"], line["error"]) for line in log.lines] == [
        ("too many open files, raise the limit", "Too many open files"),
        ("error in the event loop, please report it", "a task: KeyError: 'x'"),
    ]


def test_an_accept_on_a_closed_server_is_not_logged(log: LogLines) -> None:
    loop: Any = None
    log_loop_error(loop, {"message": "a callback", "exception": ValueError("Invalid file descriptor: -1")})
    assert log.lines == []


def test_a_state_reaches_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@nodeguard-no-listener"])
def test_without_systemd_a_notification_does_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    before = os.listdir("/proc/self/fd")
    notify_systemd("READY=1")
    assert os.listdir("/proc/self/fd") == before, "descriptors are closed"


def test_a_notification_does_not_wait_for_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)

        def notify() -> None:
            for _ in range(5000):
                notify_systemd("WATCHDOG=1")

        thread = threading.Thread(target=notify, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("microseconds", "seconds"), [("30000000", 15.0), ("", 0.0), ("soon", 0.0), ("-5", 0.0), ("0", 0.0)]
)
def test_the_watchdog_is_notified_twice_in_its_interval(
    microseconds: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds) if microseconds else monkeypatch.delenv(
        "WATCHDOG_USEC", raising=False
    )
    assert watchdog_interval() == seconds
