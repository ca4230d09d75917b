from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from nodeguard.local.unix_socket import bind_socket, is_authorized_peer


def test_a_socket_is_its_users_alone_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    with bind_socket(str(path), "agent"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) & 0o022 == 0


def test_what_listens_there_is_named_and_what_was_left_is_cleared_away(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sock")
    with bind_socket(path, "agent") as own:
        own.listen()
        with pytest.raises(FileExistsError, match="another aggregator listens there"):
            bind_socket(path, "aggregator")
    bind_socket(path, "aggregator").close()


def test_a_name_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="107 bytes at most"):
        bind_socket(str(tmp_path / ("x" * 120)), "agent")


def test_this_user_may_ask() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_authorized_peer(one)
