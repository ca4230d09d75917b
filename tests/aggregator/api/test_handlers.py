from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.aggregator.api.handlers import serve_api
from nodeguard.fleet_api.schema.domain import DomainList, DomainPage
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentPage
from nodeguard.fleet_api.schema.node import NodeList, NodePage
from nodeguard.fleet_api.schema.status import Status
from nodeguard.model.policy import GracePeriods, Policy, TopologyLabels
from tests.aggregator.api.service import Deciders, asked
from tests.fleet.scene import AT_ONCE, Fleet, finding


class Client:
    """Asks at a socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, **more: Any) -> tuple[int, bytes]:
        async with self._session.request(method, f"http://aggregator/v1/{path}", **more) as response:
            assert response.content_type == "application/json"
            return response.status, await response.read()

    async def error(self, method: str, path: str, **more: Any) -> tuple[int, str]:
        status, said = await self(method, path, **more)
        told = msgspec.json.decode(said)
        assert list(told) == ["error"]
        return status, told["error"]


@asynccontextmanager
async def client(tmp_path: Path, fleet: Fleet, deciders: Deciders) -> AsyncIterator[Client]:
    path = str(tmp_path / "run" / "aggregator.sock")
    async with serve_api(path, asked(fleet, deciders)):
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session:
            yield Client(session)
    assert not Path(path).exists()


def sick(policy: Policy = AT_ONCE) -> Fleet:
    fleet = Fleet(3, policy)
    fleet.say(1, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


async def test_every_page_is_what_its_form_says(tmp_path: Path) -> None:
    fleet = sick(
        replace(AT_ONCE, views=(TopologyLabels("rack", ("rack",)), TopologyLabels("power", ("pool",))))
    )
    [name] = fleet.planner.incidents["uid-1"]
    async with client(tmp_path, fleet, Deciders()) as ask:
        for path, form in (
            ("status", Status),
            ("nodes", NodeList),
            ("nodes/node-1", NodePage),
            ("domains", DomainList),
            ("domains/rack/r0", DomainPage),
            ("domains/r0", DomainPage),
            ("incidents", IncidentList),
            (f"incidents/{name}", IncidentPage),
        ):
            status, said = await ask("GET", path)
            assert status == 200, path
            told: Any = msgspec.json.decode(said, type=form)
            assert (told.version, told.at) == (1, "2023-11-14T22:13:30Z")
        _, said = await ask("GET", "incidents?state=withheld&state=resolved")
        assert msgspec.json.decode(said, type=IncidentList).incidents == ()
        _, said = await ask("GET", "incidents?node=node-1&state=all")
        assert len(msgspec.json.decode(said, type=IncidentList).incidents) == 1
        _, said = await ask("GET", "domains?all=yes")
        known = [one.domain for one in msgspec.json.decode(said, type=DomainList).domains]
        assert known == ["power/a", "power/b", "rack/r0"]
        fleet.change(2, labels={"rack": "a", "pool": "b"})
        wanted = (409, "'a' is several domains: write one of power/a, rack/a")
        assert await ask.error("GET", "domains/a") == wanted


async def test_decisions_are_handed_on_and_answered(tmp_path: Path) -> None:
    fleet, deciders = sick(), Deciders()
    [name] = fleet.planner.incidents["uid-1"]
    async with client(tmp_path, fleet, deciders) as ask:
        for path, body in (
            ("pause", {"why": "a bad driver", "by": "alice"}),
            ("resume", {}),
            ("unmark", {"by": "bob"}),
            (f"incidents/{name}", {"do": "acknowledge", "by": "bob"}),
            (f"incidents/{name}", {"do": "clear", "by": "bob"}),
        ):
            status, said = await ask("POST", path, json=body)
            assert (status, b"Done: " in said) == (200, True)
        assert deciders.heard == [
            ("pause", "a bad driver", "alice"),
            ("resume", ""),
            ("unmark", "bob"),
            ("acknowledge", name, "bob"),
            ("clear", name, "bob"),
        ]
        deciders.refuses = "replica-1 leads: ask it"
        assert await ask.error("POST", "pause") == (409, "replica-1 leads: ask it")


async def test_of_an_incident_that_is_pending_or_over_nothing_is_decided(tmp_path: Path) -> None:
    fleet, deciders = Fleet(8, replace(AT_ONCE, settle=GracePeriods(60.0, 60.0, 60.0))), Deciders()
    fleet.say(2, finding(age=80.0))
    fleet.carry_out()
    [over] = fleet.planner.incidents["uid-2"]
    fleet.say(2)
    fleet.say(1, finding(age=1.0))
    fleet.carry_out()
    [pending] = fleet.planner.pending["uid-1"]
    async with client(tmp_path, fleet, deciders) as ask:
        for name, problem in (
            (pending, "is in its grace period: there is nothing to decide before its end"),
            (over, "is over already: there is nothing to decide"),
        ):
            for do in ("acknowledge", "clear"):
                wanted = (409, f"{name} {problem}")
                assert await ask.error("POST", f"incidents/{name}", json={"do": do}) == wanted
    assert deciders.heard == []


async def test_every_error_is_a_sentence_with_a_remedy(tmp_path: Path) -> None:
    deciders = Deciders()
    async with client(tmp_path, sick(), deciders) as ask:
        for method, path, more, wanted in (
            ("GET", "nodes/node-9", {}, (404, "there is no node 'node-9': GET /v1/nodes lists them")),
            ("GET", "nodes/" + "x" * 300, {}, (404, "a name has 253 characters at most: this is none")),
            ("GET", "incidents?node=no", {}, (404, "there is no node 'no': GET /v1/nodes lists them")),
            ("GET", "incidents/no", {}, (404, "there is no incident 'no': GET /v1/incidents?state=all lists them")),
            ("POST", "incidents/no", {"json": {"do": "clear"}}, (404, "there is no incident 'no': GET /v1/incidents?state=all lists them")),
            ("GET", "incidents?state=bad", {}, (400, "'bad' is no state: there is all, open, pending, dry-run, withheld, marked, advised, recovering, resolved")),
            ("GET", "domains/no/r0", {}, (404, "there is no domain 'no/r0': GET /v1/domains?all=yes lists them")),
            ("GET", "pause", {}, (405, "GET is not for /v1/pause: use POST")),
            ("GET", "x", {}, (404, "/v1/x: Not Found: there is /v1/status, /v1/nodes, /v1/domains and /v1/incidents")),
            ("POST", "pause", {"data": b"x" * 20_000}, (413, "the request is too large: 16384 bytes at most")),
            ("POST", "pause", {"json": {"y": 1}}, (400, "Object contains unknown field `y`: both sides must be of one version")),
            ("POST", "pause", {"data": b"[" * 9000}, (400, None)),
            ("POST", "pause", {"data": b"\xff"}, (400, None)),
            ("POST", "pause", {"json": {"why": "x" * 600}}, (400, None)),
        ):  # fmt: skip
            status, error = await ask.error(method, path, **more)
            assert (status, wanted[1] and error) == wanted, path
    assert deciders.heard == []


async def test_a_bug_ends_one_question_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = sick()
    async with client(tmp_path, fleet, Deciders()) as ask:
        attendance = fleet.planner.state.liveness
        monkeypatch.setattr(fleet.planner.state, "attendance", None)
        status, error = await ask.error("GET", "status")
        assert (status, error.endswith(": see the aggregator's log")) == (500, True)
        monkeypatch.setattr(fleet.planner.state, "attendance", attendance)
        assert (await ask("GET", "status"))[0] == 200


async def test_two_do_not_listen_in_one_place(tmp_path: Path) -> None:
    path = str(tmp_path / "aggregator.sock")
    one = asked(sick(), Deciders())
    async with serve_api(path, one):
        with pytest.raises(FileExistsError, match="another aggregator listens there"):
            async with serve_api(path, one):
                pass
        assert Path(path).exists()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    async with serve_api(path, one):
        pass
    Path(path).write_text("mine")
    with pytest.raises(FileExistsError, match="is no socket and is left as it is"):
        async with serve_api(path, one):
            pass
    assert Path(path).read_text() == "mine"


async def test_the_socket_of_another_is_left_to_it(tmp_path: Path) -> None:
    path = str(tmp_path / "aggregator.sock")
    async with serve_api(path, asked(sick(), Deciders())):
        Path(path).unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(path)
    assert Path(path).exists()
    other.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
async def test_only_root_is_answered(tmp_path: Path) -> None:
    path = str(tmp_path / "aggregator.sock")
    for place in (tmp_path, *tmp_path.parents):
        if place.is_relative_to("/tmp") and place != Path("/tmp"):
            place.chmod(0o755)
    async with serve_api(path, asked(sick(), Deciders())):
        Path(path).chmod(0o666)
        code = (
            "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
            "s.connect(sys.argv[1]); s.sendall(b'GET /v1/status HTTP/1.0\\r\\n\\r\\n'); "
            "print(s.makefile().read())"
        )
        other = await asyncio.create_subprocess_exec(
            "python3", "-c", code, path, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await other.communicate()
        assert b"403 Forbidden" in said
        assert b'{"error":"only root, or the user that the aggregator runs as, may ask' in said
