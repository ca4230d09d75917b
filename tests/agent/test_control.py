from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from nodeguard.agent.control import Answer, ask, serve
from nodeguard.wire.instruction import Instruction, ReleaseGpus

WANTED = ReleaseGpus("1", 60.0, ("gpu/0000:1b:00",))


async def echo(one: Instruction) -> Answer:
    return Answer(done=True, said=one.id)


async def test_who_asks_is_answered(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "agent.sock")
    async with await serve(path, echo):
        assert await asyncio.to_thread(ask, path, WANTED, 5.0) == Answer(done=True, said="1")
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "said", [b"\n", b"{}\n", b'{"do":"shut-down","id":"1"}\n', b"\xff\n", b"[" * 9000 + b"\n"]
)
async def test_what_is_no_instruction_is_refused(tmp_path: Path, said: bytes) -> None:
    path = str(tmp_path / "agent.sock")
    async with await serve(path, echo):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(said)
        assert b'"done":false,"said":"this is no instruction' in await reader.read()
        writer.close()


async def test_what_never_ends_is_let_go(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    async with await serve(path, echo):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * 20_000)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
async def test_only_root_is_heard(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    for place in (tmp_path, *tmp_path.parents):
        if place.is_relative_to("/tmp") and place != Path("/tmp"):
            place.chmod(0o755)
    async with await serve(path, echo):
        Path(path).chmod(0o666)
        code = (
            "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
            "s.connect(sys.argv[1]); s.sendall(b'{}\\n'); print(s.recv(4096).decode())"
        )
        asked = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, path, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asked.communicate()
        assert b"only root may ask for this" in said


async def test_a_socket_that_was_left_is_taken_over_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    async with await serve(path, echo):
        with pytest.raises(FileExistsError, match="another agent listens there"):
            await serve(path, echo)
        assert (await asyncio.to_thread(ask, path, WANTED, 5.0)).done
