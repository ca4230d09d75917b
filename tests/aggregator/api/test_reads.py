from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from nodeguard.fleet_api.schema.component import ComponentList
from nodeguard.fleet_api.schema.domain import DomainList, DomainView
from nodeguard.fleet_api.schema.history import HistoryView
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeView
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.model.policy import TopologyLabels
from tests.aggregator.api.service import RecordingActions, client, fleet_with_fault
from tests.fleet.scene import AT_ONCE, Fleet


async def test_every_response_fits_its_schema(tmp_path: Path) -> None:
    fleet = fleet_with_fault(
        replace(AT_ONCE, topologies=(TopologyLabels("rack", ("rack",)), TopologyLabels("power", ("pool",))))
    )
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]
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
