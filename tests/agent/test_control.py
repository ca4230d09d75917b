from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from nodeguard.agent.control import InstructionOutcome, send_instruction, serve_control
from nodeguard.wire.instruction import DetachGpus, Instruction

WANTED = DetachGpus("1", 60.0, ("gpu/0000:1b:00",))


async def echo(one: Instruction) -> InstructionOutcome:
    return InstructionOutcome(done=True, message=one.id)


async def test_who_asks_is_answered(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "agent.sock")
    async with await serve_control(path, echo):
        assert await asyncio.to_thread(send_instruction, path, WANTED, 5.0) == InstructionOutcome(
            done=True, message="1"
        )
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "said", [b"\n", b"{}\n", b'{"kind":"shut-down","id":"1"}\n', b"\xff\n", b"[" * 9000 + b"\n"]
)
async def test_what_is_no_instruction_is_refused(tmp_path: Path, said: bytes) -> None:
    path = str(tmp_path / "agent.sock")
    async with await serve_control(path, echo):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(said)
        assert b'"done":false,"message":"this is not an instruction' in await reader.read()
        writer.close()


async def test_what_never_ends_is_let_go(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    async with await serve_control(path, echo):
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
    async with await serve_control(path, echo):
        Path(path).chmod(0o666)
        code = (
            "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
            "s.connect(sys.argv[1]); s.sendall(b'{}\\n'); print(s.recv(4096).decode())"
        )
        asked = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, path, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asked.communicate()
        assert b"only root may do this" in said


async def test_a_socket_that_was_left_is_taken_over_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    async with await serve_control(path, echo):
        with pytest.raises(FileExistsError, match="another agent listens there"):
            await serve_control(path, echo)
        assert (await asyncio.to_thread(send_instruction, path, WANTED, 5.0)).done


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_is_no_socket_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "agent.sock", tmp_path / "kept"
    other.write_text("years of work")
    if kind == "file":
        path.write_text("years of work")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(other)
    with pytest.raises(FileExistsError, match="is not a socket and is not removed") as refused:
        await serve_control(str(path), echo)
    assert refused.value.strerror == "is not a socket and is not removed"
    assert os.path.lexists(path)
    assert other.read_text() == "years of work"
    assert kind != "file" or path.read_text() == "years of work"


async def test_a_name_without_a_directory_is_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await serve_control("s", echo):
        assert (await asyncio.to_thread(send_instruction, "s", WANTED, 5.0)).done


async def test_a_name_that_is_too_long_is_told_so(tmp_path: Path) -> None:
    path = str(tmp_path / ("a" * 120))
    with pytest.raises(OSError, match="File name too long") as refused:
        await serve_control(path, echo)
    assert refused.value.strerror == "File name too long: 107 bytes at most"


async def test_what_nobody_waits_for_any_more_is_not_carried_out(tmp_path: Path) -> None:
    path, carried = str(tmp_path / "agent.sock"), list[str]()

    async def carry(one: Instruction) -> InstructionOutcome:
        carried.append(one.id)
        return InstructionOutcome(done=True, message=one.id)

    async with await serve_control(path, carry):
        with socket.socket(socket.AF_UNIX) as gone:
            gone.connect(path)
            gone.sendall(msgspec.json.encode(DetachGpus("gone", 60.0)) + b"\n")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.connect(path)
            listening.sendall(msgspec.json.encode(DetachGpus("listening", 60.0)) + b"\n")
            listening.shutdown(socket.SHUT_WR)
            assert b'"listening"' in await asyncio.to_thread(listening.recv, 4096)
    assert carried == ["listening"]
