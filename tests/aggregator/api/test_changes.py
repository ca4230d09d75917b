from __future__ import annotations

from pathlib import Path

import msgspec

from nodeguard.model.action import ActionKind
from tests.aggregator.api.service import RecordingActions, client, fleet_with_fault
from tests.fleet.scene import Fleet, foreign


async def test_actions_are_carried_out_and_their_message_returned(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]
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
