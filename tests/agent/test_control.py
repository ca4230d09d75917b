from __future__ import annotations

import asyncio
import grp
import os
import socket
import stat
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.agent.control import (
    AgentStatus,
    AgentValues,
    GetStatus,
    InjectFault,
    InjectionRequest,
    InstructionOutcome,
    SourceValues,
    get_status,
    get_values,
    send_instruction,
    serve_control,
)
from nodeguard.model.finding import DataStatus, Health, Verdict
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Instruction
from tests.judge.judged_node import finding

DETACH = DetachGpus("1", 60.0, ("gpu/0000:1b:00",))
STATUS = AgentStatus(
    version="0.1",
    node="gpu-1",
    at=1e9,
    boot_id="boot",
    verdict=Verdict(Health.SUSPECT, DataStatus.FRESH, (finding("a"),), evaluated=1),
    ages={"nvml": 1.0},
    unread=(),
    detached={"node": 1e9 + 60.0},
    acknowledged_at={"https://a": None, "https://b": 1e9},
    spooled=1,
)


async def echo(instruction: Instruction) -> InstructionOutcome:
    return InstructionOutcome(done=True, message=instruction.id)


async def refuse(request: InjectionRequest, uid: int) -> InstructionOutcome:
    raise AssertionError((request, uid))


async def test_the_values_of_devices_are_for_all_who_may_connect(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    values = AgentValues(
        "gpu-1", 1e9, (SourceValues("nvml", 1.0, False, {"gpu/a": {"gpu.temperature": 61.5}}),)
    )
    async with await serve_control(path, echo, refuse, lambda: STATUS, values=lambda: values):
        assert await asyncio.to_thread(get_values, path, 5.0) == values
    async with await control(path):
        with pytest.raises(msgspec.DecodeError):
            await asyncio.to_thread(get_values, path, 5.0)


def control(path: str, group: str = "") -> asyncio.Future[asyncio.Server]:
    return asyncio.ensure_future(serve_control(path, echo, refuse, lambda: STATUS, group))


async def send_as_other_user(path: str, request: bytes) -> bytes:
    """Send a request as another user, and return the response."""
    code = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(sys.argv[2].encode() + b'\\n'); print(s.recv(4096).decode())"
    )
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, path, request.decode(), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await client.communicate()
    return output


def open_to_all(path: Path) -> None:
    """Let every user reach a file of the test."""
    for directory in (path, *path.parents):
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)


async def test_an_instruction_gets_its_outcome(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "agent.sock")
    async with await control(path):
        outcome = await asyncio.to_thread(send_instruction, path, DETACH, 5.0)
        assert outcome == InstructionOutcome(done=True, message="1")
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


async def test_a_fault_is_injected_for_the_user_id_of_the_peer(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    requests = []

    async def inject(request: InjectionRequest, uid: int) -> InstructionOutcome:
        requests.append((request, uid))
        return InstructionOutcome(done=True, message="injected")

    async with await serve_control(path, echo, inject, lambda: STATUS):
        outcome = await asyncio.to_thread(send_instruction, path, InjectFault("gpu-lost"), 5.0)
        assert outcome == InstructionOutcome(done=True, message="injected")
        assert requests == [(InjectFault("gpu-lost"), os.getuid())]


async def test_an_instruction_has_no_control_characters(tmp_path: Path) -> None:
    path, requests = str(tmp_path / "agent.sock"), []

    async def carry_out(instruction: Instruction) -> InstructionOutcome:
        requests.append(instruction)
        return InstructionOutcome(done=True, message="")

    async with await serve_control(path, carry_out, refuse, lambda: STATUS):
        clear = ClearFinding("1", "gpu-lost", "node", by="al\x1b[31mice\n")
        await asyncio.to_thread(send_instruction, path, clear, 5.0)
        assert requests == [replace(clear, by="al?[31mice ")]


@pytest.mark.root
async def test_another_user_injects_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    async with await serve_control(str(path), echo, refuse, lambda: STATUS):
        open_to_all(path.parent)
        path.chmod(0o666)
        response = await send_as_other_user(str(path), msgspec.json.encode(InjectFault("gpu-lost")))
    assert b"permission denied: only root may do this" in response


async def test_the_status_is_complete(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    async with await control(path):
        assert await asyncio.to_thread(get_status, path, 5.0) == STATUS


async def test_members_of_the_group_may_connect(tmp_path: Path) -> None:
    path, group = tmp_path / "agent.sock", grp.getgrgid(os.getgid())
    async with await control(str(path), group.gr_name):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == group.gr_gid


async def test_an_unknown_group_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="there is no group no-such-group"):
        await control(str(tmp_path / "agent.sock"), "no-such-group")


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b'{"kind":"shut-down","id":"1"}\n', b"\xff\n", b"[" * 9000 + b"\n"]
)
async def test_an_invalid_request_is_refused(tmp_path: Path, line: bytes) -> None:
    path = str(tmp_path / "agent.sock")
    async with await control(path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line)
        assert b'"done":false,"message":"this is not an instruction' in await reader.read()
        writer.close()


async def test_a_request_without_an_end_gets_no_response(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    async with await control(path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * 20_000)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.root
async def test_other_users_may_read_the_status_and_send_no_instruction(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    open_to_all(tmp_path)
    async with await control(path):
        Path(path).chmod(0o666)
        assert b"only root may do this" in await send_as_other_user(path, msgspec.json.encode(DETACH))
        assert b'"node":"gpu-1"' in await send_as_other_user(path, msgspec.json.encode(GetStatus()))


async def test_a_stale_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    async with await control(path):
        with pytest.raises(FileExistsError, match="another agent listens there"):
            await control(path)
        assert (await asyncio.to_thread(send_instruction, path, DETACH, 5.0)).done


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_a_path_that_is_not_a_socket_is_not_changed(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "agent.sock", tmp_path / "other"
    other.write_text("content")
    if kind == "file":
        path.write_text("content")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(other)
    with pytest.raises(FileExistsError, match="is not a socket and is not removed") as refused:
        await control(str(path))
    assert refused.value.strerror == "is not a socket and is not removed"
    assert os.path.lexists(path)
    assert other.read_text() == "content"
    assert kind != "file" or path.read_text() == "content"


async def test_a_name_without_a_directory_is_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await control("s"):
        assert (await asyncio.to_thread(send_instruction, "s", DETACH, 5.0)).done


async def test_a_path_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long") as refused:
        await control(str(tmp_path / ("a" * 120)))
    assert refused.value.strerror == "File name too long: 107 bytes at most"


async def test_an_instruction_of_a_client_that_has_left_is_not_carried_out(tmp_path: Path) -> None:
    path, ids = str(tmp_path / "agent.sock"), list[str]()

    async def carry_out(instruction: Instruction) -> InstructionOutcome:
        ids.append(instruction.id)
        return InstructionOutcome(done=True, message=instruction.id)

    async with await serve_control(path, carry_out, refuse, lambda: STATUS):
        with socket.socket(socket.AF_UNIX) as left:
            left.connect(path)
            left.sendall(msgspec.json.encode(DetachGpus("left", 60.0)) + b"\n")
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(path)
            waiting.sendall(msgspec.json.encode(DetachGpus("waiting", 60.0)) + b"\n")
            waiting.shutdown(socket.SHUT_WR)
            assert b'"waiting"' in await asyncio.to_thread(waiting.recv, 4096)
    assert ids == ["waiting"]
