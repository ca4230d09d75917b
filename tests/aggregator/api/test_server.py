from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from nodeguard.aggregator.api.server import serve_api
from tests.aggregator.api.service import RecordingActions, api_context, client, fleet_with_fault


async def test_an_internal_error_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = fleet_with_fault()
    async with client(tmp_path, fleet, RecordingActions()) as query:
        liveness = fleet.planner.state.liveness
        monkeypatch.setattr(fleet.planner.state, "liveness", None)
        status, error = await query.error("GET", "status")
        assert (status, error.endswith(": see the aggregator's log")) == (500, True)
        monkeypatch.setattr(fleet.planner.state, "liveness", liveness)
        assert (await query("GET", "status"))[0] == 200


async def test_two_aggregators_cannot_use_one_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "aggregator.sock")
    context = api_context(fleet_with_fault(), RecordingActions())
    async with serve_api(path, context):
        with pytest.raises(FileExistsError, match="another aggregator listens there"):
            async with serve_api(path, context):
                pass
        assert Path(path).exists()
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(path)
    async with serve_api(path, context):
        pass
    Path(path).write_text("mine")
    with pytest.raises(FileExistsError, match="is not a socket and is not removed"):
        async with serve_api(path, context):
            pass
    assert Path(path).read_text() == "mine"


async def test_the_socket_of_another_aggregator_is_not_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "aggregator.sock")
    async with serve_api(path, api_context(fleet_with_fault(), RecordingActions())):
        Path(path).unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(path)
    assert Path(path).exists()
    other.close()


@pytest.mark.root
async def test_other_users_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "aggregator.sock")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    async with serve_api(path, api_context(fleet_with_fault(), RecordingActions())):
        Path(path).chmod(0o666)
        code = (
            "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
            "s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b' HTTP/1.0\\r\\n\\r\\n'); "
            "print(s.makefile().read())"
        )
        for asked in ("GET /v1/status", "POST /v1/nodes/node-1/drain"):
            other = await asyncio.create_subprocess_exec(
                "python3", "-c", code, path, asked, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await other.communicate()
            assert b"403 Forbidden" in output
            assert b'{"error":"only root, or the user that the aggregator runs as, may ask' in output
