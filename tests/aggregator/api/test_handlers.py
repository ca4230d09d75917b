from __future__ import annotations

import asyncio
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
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from nodeguard.fleet_api.schema.component import ComponentList
from nodeguard.fleet_api.schema.domain import DomainList, DomainView
from nodeguard.fleet_api.schema.history import HistoryView
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeView
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.model.action import ActionKind
from nodeguard.model.incident import FalseAlarm, OperatorDecision
from nodeguard.model.policy import GracePeriods, Policy, TopologyLabels
from tests.aggregator.api.service import RecordingActions, api_context
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign


class Client:
    """A client of the API at a socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, **options: Any) -> tuple[int, bytes]:
        async with self._session.request(method, f"http://aggregator/v1/{path}", **options) as response:
            assert response.content_type == "application/json"
            return response.status, await response.read()

    async def error(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        status, body = await self(method, path, **options)
        content = msgspec.json.decode(body)
        assert list(content) == ["error"]
        return status, content["error"]


@asynccontextmanager
async def client(
    tmp_path: Path, fleet: Fleet, actions: RecordingActions, history: str = ""
) -> AsyncIterator[Client]:
    path = str(tmp_path / "run" / "aggregator.sock")
    async with serve_api(path, replace(api_context(fleet, actions), history=history)):
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session:
            yield Client(session)
    assert not Path(path).exists()


def fleet_with_fault(policy: Policy = AT_ONCE) -> Fleet:
    fleet = Fleet(3, policy)
    fleet.report(1, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


async def test_every_response_fits_its_schema(tmp_path: Path) -> None:
    fleet = fleet_with_fault(
        replace(AT_ONCE, topologies=(TopologyLabels("rack", ("rack",)), TopologyLabels("power", ("pool",))))
    )
    [name] = fleet.planner.tracker.incidents["uid-1"]
    async with client(tmp_path, fleet, RecordingActions()) as query:
        for path, schema in (
            ("status", FleetStatus),
            ("nodes", NodeList),
            ("nodes/node-1", NodeView),
            ("gpus", ComponentList),
            ("ports?node=node-1", ComponentList),
            ("domains", DomainList),
            ("domains/rack/r0", DomainView),
            ("domains/r0", DomainView),
            ("incidents", IncidentList),
            (f"incidents/{name}", IncidentView),
        ):
            status, body = await query("GET", path)
            assert status == 200, path
            content: Any = msgspec.json.decode(body, type=schema)
            assert (content.version, content.at) == (1, "2023-11-14T22:13:30Z")
        _, body = await query("GET", "incidents?state=withheld&state=resolved")
        assert msgspec.json.decode(body, type=IncidentList).incidents == ()
        _, body = await query("GET", "incidents?node=node-1&state=all")
        assert len(msgspec.json.decode(body, type=IncidentList).incidents) == 1
        _, body = await query("GET", "domains?all=yes")
        domains = msgspec.json.decode(body, type=DomainList).domains
        assert [domain.domain for domain in domains] == ["power/a", "power/b", "rack/r0"]
        fleet.change(2, labels={"rack": "a", "pool": "b"})
        fleet.carry_out()
        expected = (409, "'a' is several domains: write one of power/a, rack/a")
        assert await query.error("GET", "domains/a") == expected
        fleet.declare(*(TopologyLabels(f"hall{number}", ("pool",)) for number in range(4)))
        fleet.carry_out()
        _, reason = await query.error("GET", "domains/a")
        assert reason.endswith(" and 2 more")


async def test_actions_are_carried_out_and_their_message_returned(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    [name] = fleet.planner.tracker.incidents["uid-1"]
    async with client(tmp_path, fleet, actions) as query:
        for path, body in (
            ("pause", {"reason": "a bad driver", "by": "alice"}),
            ("resume", {}),
            ("unmark", {"by": "bob"}),
            ("unmark", {"by": "bob", "reason": "a false alarm", "nodes": ["node-1", "node-2", "node-1"]}),
            (f"incidents/{name}", {"action": "acknowledge", "by": "bob"}),
            (f"incidents/{name}", {"action": "clear", "by": "bob"}),
        ):
            status, response = await query("POST", path, json=body)
            assert (status, b"Done: " in response) == (200, True)
        assert actions.calls == [
            ("pause", "a bad driver", "alice"),
            ("resume", ""),
            ("unmark", "bob"),
            ("unmark", "node-1", "node-2", "a false alarm", "bob"),
            ("acknowledge", name, "bob"),
            ("clear", name, "bob"),
        ]
        actions.calls.clear()
        await query("POST", "pause", json={"reason": "a\x1b[2J\nb", "by": "al\u202eice"})
        assert actions.calls.pop() == ("pause", "a?[2J b", "al?ice")
        assert await query.error("POST", "unmark", json={"nodes": ["node-1", "node-77"]}) == (
            404,
            "there is no node 'node-77': nothing was changed",
        )
        assert (await query("POST", "unmark", json={"nodes": [""]}))[0] == 400
        assert actions.calls == []
        actions.error = "replica-1 leads: ask it"
        assert await query.error("POST", "pause") == (409, "replica-1 leads: ask it")


async def test_a_detach_of_gpus_is_reserved(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    async with client(tmp_path, fleet, actions) as query:
        body = {"seconds": 1800, "gpus": ["3"], "by": "alice"}
        status, response = await query("POST", "nodes/node-1/gpus", json=body)
        [action] = actions.reserved
        assert status == 200
        assert f"the agent of node-1 is asked: NodeAction {action.key}" in response.decode()
        assert (action.kind, action.node, action.uid) == (ActionKind.DETACH_GPUS, "node-1", "uid-1")
        assert (action.gpus, action.seconds, action.deadline - action.created_at) == (("3",), 1800, 600)
        assert action.request.startswith("alice at ")
        await query("POST", "nodes/node-1/gpus", json={"seconds": 0})
        attach = actions.reserved[1]
        assert (attach.gpus, attach.seconds, attach.deadline - attach.created_at) == ((), 0, 600)
        assert attach.request.startswith("an operator at ")
        for invalid in ({}, {"seconds": -1}, {"seconds": 86_401}, {"seconds": 1, "gpus": [""]}):
            assert (await query("POST", "nodes/node-1/gpus", json=invalid))[0] == 400
        expected = (404, "there is no node 'node-77': see nodeguard get nodes")
        assert await query.error("POST", "nodes/node-77/gpus", json=body) == expected
        actions.error = "no NodeActions"
        expected = (409, "not done, as it cannot be stored: no NodeActions")
        assert await query.error("POST", "nodes/node-1/gpus", json=body) == expected
    assert len(actions.reserved) == 2


async def test_unmark_names_nodes_with_taints_that_stay(tmp_path: Path) -> None:
    fleet, actions = Fleet(12), RecordingActions()
    for number in range(2, 12):
        fleet.change(number, taints=(foreign("nodeguard.dev/suspect"),))
    async with client(tmp_path, fleet, actions) as query:
        _, response = await query("POST", "unmark", json={"by": "bob"})
        text = msgspec.json.decode(response)["message"]
        assert (
            "taints under nodeguard.dev/ that nodeguard did not set stay on node-10, node-11, node-2" in text
        )
        assert text.endswith(" and 2 more")
        _, response = await query("POST", "unmark", json={"by": "bob", "nodes": ["node-1", "node-3"]})
        assert msgspec.json.decode(response)["message"].endswith("did not set stay on node-3")


async def test_the_history_of_a_node_is_read_from_the_file(tmp_path: Path) -> None:
    fleet, path = Fleet(3), str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    for text in (
        "{}",
        '{"causes":[{"mark":"quarantine","check":"a","target":"node","fault_class":"f","since":1}]}',
    ):
        store.add([HistoryNote(fleet.wall, NoteKind.MARKS, "uid-1", "node-1", text)], fleet.wall)
    store.close()
    async with client(tmp_path, fleet, RecordingActions(), history=path) as query:
        for target, expected in (
            ("history?since=60&name=node-1", ["marked"]),
            ("history?name=node-2", []),
            ("history", ["marked"]),
        ):
            _, content = await query("GET", target)
            assert [
                entry.change for entry in msgspec.json.decode(content, type=HistoryView).entries
            ] == expected
        for target, status in (
            ("history?name=node-77", 404),
            ("history?since=never", 400),
            ("history?since=nan", 400),
            ("history?since=-5", 400),
        ):
            assert (await query.error("GET", target))[0] == status
    (tmp_path / "history.sqlite").write_text("x")
    async with client(tmp_path, fleet, RecordingActions(), history=path) as query:
        status, error = await query.error("GET", "history")
        assert (status, "the history cannot be read" in error) == (409, True)
    async with client(tmp_path, fleet, RecordingActions()) as query:
        problem = "this aggregator records no history: start it with --history DIR"
        assert await query.error("GET", "history") == (409, problem)


async def test_an_action_on_a_pending_or_resolved_incident_is_refused(tmp_path: Path) -> None:
    fleet, actions = Fleet(8, replace(AT_ONCE, grace=GracePeriods(60.0, 60.0, 60.0))), RecordingActions()
    fleet.report(2, finding(age=80.0))
    fleet.carry_out()
    [over] = fleet.planner.tracker.incidents["uid-2"]
    fleet.report(2)
    fleet.report(1, finding(age=1.0))
    fleet.carry_out()
    [pending] = fleet.planner.tracker.pending["uid-1"]
    async with client(tmp_path, fleet, actions) as query:
        for name, problem in (
            (pending, "is in its grace period: there is nothing to decide before its end"),
            (over, "is over already: there is nothing to decide"),
        ):
            for action in ("acknowledge", "clear"):
                expected = (409, f"{name} {problem}")
                response = await query.error("POST", f"incidents/{name}", json={"action": action})
                assert response == expected
    assert actions.calls == []


async def test_a_false_alarm_is_recorded_also_after_the_end_of_the_incident(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    [name] = fleet.planner.tracker.incidents["uid-1"]
    statement = {"action": "clear", "by": "bob", "false_alarm": True, "reason": "a bad sensor"}
    async with client(tmp_path, fleet, actions) as query:
        _, response = await query("POST", f"incidents/{name}", json=statement)
        assert msgspec.json.decode(response) == {"message": "Done: false alarm.; Done: clear."}
        fleet.report(1)
        fleet.carry_out()
        _, response = await query("POST", f"incidents/{name}", json=statement)
        assert msgspec.json.decode(response) == {"message": "Done: false alarm."}
        recorded = ("false alarm", name, "bob", "a bad sensor")
        assert actions.calls == [recorded, ("clear", name, "bob"), recorded]
        for invalid, problem in (
            (
                {"action": "acknowledge", "false_alarm": True},
                "a false alarm is cleared: use the action clear",
            ),
            (
                {"action": "clear", "reason": "a bad sensor"},
                "a reason is for a false alarm only: add false_alarm, or leave it out",
            ),
        ):
            assert await query.error("POST", f"incidents/{name}", json=invalid) == (400, problem)
        status, _ = await query.error("POST", "incidents/no", json=statement)
        assert status == 404


async def test_a_false_alarm_is_withdrawn_where_it_is_recorded(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    [name] = fleet.planner.tracker.incidents["uid-1"]
    wanted = {"action": "withdraw", "reason": "a real fault"}
    nothing = (409, f"{name} is not recorded as a false alarm: there is nothing to withdraw")
    async with client(tmp_path, fleet, actions) as query:
        assert await query.error("POST", f"incidents/{name}", json=wanted) == nothing
        status, _ = await query.error("POST", "incidents/no", json=wanted)
        assert status == 404
        actions.decisions = {name: OperatorDecision(name, false_alarm=FalseAlarm("bob"))}
        _, response = await query("POST", f"incidents/{name}", json=wanted)
        assert msgspec.json.decode(response) == {"message": "Done: withdraw."}
        assert actions.calls == [("withdraw", name, "an operator", "a real fault")]
        actions.decisions = {name: OperatorDecision(name, false_alarm=FalseAlarm("bob", withdrawn=True))}
        assert await query.error("POST", f"incidents/{name}", json=wanted) == nothing


async def test_a_false_alarm_stays_recorded_if_the_clear_is_refused(tmp_path: Path) -> None:
    class Refusing(RecordingActions):
        async def clear(self, name: str, by: str) -> str:
            raise OperatorActionError("no NodeActions")

    fleet = fleet_with_fault()
    [name] = fleet.planner.tracker.incidents["uid-1"]
    async with client(tmp_path, fleet, Refusing()) as query:
        error = await query.error("POST", f"incidents/{name}", json={"action": "clear", "false_alarm": True})
    assert error == (409, "Done: false alarm., but not cleared: no NodeActions")


async def test_every_error_has_a_remedy(tmp_path: Path) -> None:
    actions = RecordingActions()
    async with client(tmp_path, fleet_with_fault(), actions) as query:
        for method, path, options, expected in (
            ("GET", "nodes/node-9", {}, (404, "there is no node 'node-9': see nodeguard get nodes")),
            ("GET", "nodes/" + "x" * 300, {}, (404, "a name has 253 characters at most: this is none")),
            ("GET", "incidents?node=no", {}, (404, "there is no node 'no': see nodeguard get nodes")),
            ("GET", "incidents/no", {}, (404, "there is no incident 'no': see nodeguard get incidents --all")),
            ("POST", "incidents/no", {"json": {"action": "clear"}}, (404, "there is no incident 'no': see nodeguard get incidents --all")),
            ("GET", "incidents?state=bad", {}, (400, "'bad' is no state: there is all, open, pending, dry-run, withheld, marked, advised, recovering, resolved")),
            ("GET", "domains/no/r0", {}, (404, "there is no domain 'no/r0': see nodeguard get domains --all")),
            ("GET", "pause", {}, (405, "GET is not for /v1/pause: use POST")),
            ("GET", "x", {}, (404, "/v1/x: Not Found: there is /v1/status, /v1/nodes, /v1/domains, /v1/incidents and /v1/history")),
            ("POST", "pause", {"data": b"x" * 20_000}, (413, "the request is too large: 16384 bytes at most")),
            ("POST", "pause", {"json": {"y": 1}}, (400, "Object contains unknown field `y`: both sides must be of one version")),
            ("POST", "pause", {"data": b"[" * 9000}, (400, None)),
            ("POST", "pause", {"data": b"\xff"}, (400, None)),
            ("POST", "pause", {"json": {"reason": "x" * 600}}, (400, None)),
        ):  # fmt: skip
            status, error = await query.error(method, path, **options)
            assert (status, expected[1] and error) == expected, path
    assert actions.calls == []


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
