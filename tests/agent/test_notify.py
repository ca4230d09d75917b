from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from nodeguard.agent.process import notify_systemd, watchdog_interval
from tests.waiting import PATIENCE


def test_a_state_reaches_who_started_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@nodeguard-nobody-listens"])
def test_nobody_to_tell_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    before = os.listdir("/proc/self/fd")
    notify_systemd("READY=1")
    assert os.listdir("/proc/self/fd") == before, "what was opened is closed"


def test_who_does_not_read_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)

        def tell() -> None:
            for _ in range(5000):
                notify_systemd("WATCHDOG=1")

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(PATIENCE)
        assert not telling.is_alive()


@pytest.mark.parametrize(
    ("said", "every"), [("30000000", 15.0), ("", 0.0), ("soon", 0.0), ("-5", 0.0), ("0", 0.0)]
)
def test_the_watchdog_is_told_twice_as_often_as_it_asks(
    said: str, every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", said) if said else monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert watchdog_interval() == every
