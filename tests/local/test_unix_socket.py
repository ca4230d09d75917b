from __future__ import annotations

import asyncio
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nodeguard.local import unix_socket
from nodeguard.local.unix_socket import (
    acquire_state_lock,
    bind_socket,
    is_authorized_peer,
    listen_again_when_removed,
)
from tests.logs import LogLines
from tests.waiting import until_async


def test_the_socket_has_mode_0600_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    with bind_socket(str(path), "agent"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) & 0o022 == 0


def test_a_stale_socket_is_removed_and_one_in_use_is_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sock")
    with bind_socket(path, "agent") as own:
        own.listen()
        with pytest.raises(FileExistsError, match="another aggregator listens there"):
            bind_socket(path, "aggregator")
    bind_socket(path, "aggregator").close()


def test_a_path_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="107 bytes at most"):
        bind_socket(str(tmp_path / ("x" * 120)), "agent")


async def test_a_removed_socket_is_bound_again_once_its_directory_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    monkeypatch.setattr(unix_socket, "_CHECK_SECONDS", 0.01)
    path = tmp_path / "run" / "nodeguard" / "a.sock"
    sockets: list[socket.socket] = []

    async def listen() -> None:
        sockets.append(bind_socket(str(path), "agent"))

    watch = asyncio.create_task(listen_again_when_removed(str(path), listen))
    await until_async(log.messages)
    path.parent.parent.mkdir()
    await until_async(lambda: sockets)
    await asyncio.sleep(0.1)
    watch.cancel()
    with sockets.pop():
        assert (path.is_socket(), sockets) == (True, [])
    assert log.messages() == [
        "cannot create a removed socket again",
        "the socket was removed: a new one is created",
    ]


async def test_a_socket_that_another_service_used_at_the_start_is_bound_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    monkeypatch.setattr(unix_socket, "_CHECK_SECONDS", 0.01)
    path = str(tmp_path / "a.sock")
    sockets: list[socket.socket] = []

    async def listen() -> None:
        sockets.append(bind_socket(path, "agent"))

    with bind_socket(path, "agent") as other:
        other.listen()
        watch = asyncio.create_task(listen_again_when_removed(path, listen, is_listening=False))
        await asyncio.sleep(0.1)
        assert (sockets, log.messages()) == ([], [])
    await until_async(lambda: sockets)
    watch.cancel()
    sockets.pop().close()
    assert log.messages() == ["listening on the socket"]


async def test_a_socket_that_cannot_be_completed_leaves_no_path_and_is_bound_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_socket, "_CHECK_SECONDS", 0.01)
    path = tmp_path / "a.sock"
    with pytest.raises(OSError, match="there is no group no-such-group"):
        bind_socket(str(path), "agent", "no-such-group")
    assert not path.exists()
    sockets: list[socket.socket] = []

    async def listen() -> None:
        if not path.exists():
            bind_socket(str(path), "agent").close()
            raise OSError("the socket was bound and does not listen")
        sockets.append(bind_socket(str(path), "agent"))

    watch = asyncio.create_task(listen_again_when_removed(str(path), listen))
    await until_async(lambda: sockets)
    await asyncio.sleep(0.1)
    watch.cancel()
    with sockets.pop():
        assert sockets == []


def test_the_own_user_is_authorized() -> None:
    client, server = socket.socketpair()
    with client, server:
        assert is_authorized_peer(client)


def test_the_lock_is_exclusive_and_ends_with_its_process(tmp_path: Path) -> None:
    code = f"from nodeguard.local.unix_socket import acquire_state_lock; h = acquire_state_lock({str(tmp_path)!r}); print(h is not None, flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert acquire_state_lock(str(tmp_path)) is None
        elsewhere = acquire_state_lock(str(tmp_path / "other"))
        assert elsewhere is not None
        elsewhere.close()
        other.kill()
    held = acquire_state_lock(str(tmp_path))
    assert held is not None
    held.close()
