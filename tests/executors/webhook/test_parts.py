"""Tests for nodeguard.executors.webhook.executor: lists in parts, and what of them is reported."""

from __future__ import annotations

from typing import Any

import pytest

from nodeguard.executors.webhook.executor import RESYNC
from nodeguard.model.mark import Mark, MarkRecord
from tests.executors.receiver import MarkReceiver, documented_receiver
from tests.executors.webhook.scene import NOW, Scene, decision
from tests.waiting import until_async


async def test_a_list_that_is_too_large_for_the_receiver_is_sent_in_parts(receiver: MarkReceiver) -> None:
    receiver.limit = 3100
    nodes = {f"node-{number}": {"suspect"} for number in range(40)}
    former = Scene(receiver, decision(40, Mark.QUARANTINE))
    async with former.running():
        await until_async(lambda: bool(receiver.drained))
    receiver.lose = 2
    scene = Scene(receiver, *(decision(number, Mark.SUSPECT) for number in range(40)), epoch=2)
    async with scene.running():
        await until_async(lambda: receiver.drained == nodes)
        scene.executor.desired([decision(0, Mark.QUARANTINE)])
        await until_async(lambda: receiver.drained == {**nodes, "node-0": {"quarantine"}})
    parts = [body for body in receiver.bodies if body["change"] == "part"]
    assert {len(body["nodes"]) for body in parts} == {10}
    assert {(body["parts"], body["sequence"]) for body in parts} == {(4, parts[0]["sequence"])}
    assert not scene.executor.delivery.refused["slurm"]
    assert scene.reports.failures == []


async def test_a_node_that_is_too_large_for_the_receiver_is_refused(receiver: MarkReceiver) -> None:
    receiver.limit = 200
    scene = Scene(receiver, *(decision(number, Mark.SUSPECT) for number in range(2)))
    async with scene.running():
        await until_async(lambda: len(scene.reports.failures) == 2)
    assert {(node, error.is_refused) for node, error in scene.reports.failures} == {
        ("uid-0", True),
        ("uid-1", True),
    }
    assert receiver.drained == {}


def request(sequence: int, change: str, part: int, *nodes: str) -> dict[str, Any]:
    marks = [{"node": node, "marks": [{"kind": "suspect"}]} for node in nodes]
    return {"epoch": 1, "sequence": sequence, "change": change, "part": part, "parts": 2, "nodes": marks}


@pytest.mark.parametrize(
    ("requests", "drained"),
    [
        ([(2, "part", 1, "a"), (2, "part", 2, "b")], "ab"),
        ([(2, "part", 2, "b"), (2, "part", 1, "a"), (2, "part", 1, "a")], "ab"),
        ([(2, "part", 1, "a")], "abc"),  # a lost part
        ([(2, "part", 1, "a"), (3, "part", 2, "b")], "abc"),
        ([(2, "part", 1, "a"), (3, "part", 1, "a"), (2, "part", 2, "b"), (3, "part", 2, "c")], "ac"),
        ([(2, "part", 1, "a"), (3, "node", 1, "d"), (2, "part", 2, "b")], "abd"),
        (
            [(2, "part", 1, "a"), (2, "part", 2), (4, "part", 1), (3, "part", 2, "b"), (4, "part", 2, "d")],
            "d",
        ),
    ],
)
def test_the_documented_receiver_releases_nodes_by_complete_lists_only(
    requests: list[Any], drained: str
) -> None:
    receive, marks = documented_receiver()["receive"], dict[str, Any]()
    receive(request(1, "part", 1, "a", "b") | {"change": "all", "parts": 1}, marks.__setitem__)
    receive(request(1, "node", 1, "c"), marks.__setitem__)
    for item in requests:
        receive(request(*item), marks.__setitem__)
    assert "".join(sorted(node for node in marks if marks[node])) == drained


async def test_an_accepted_part_with_an_older_record_is_not_reported(receiver: MarkReceiver) -> None:
    older = [decision(number, Mark.QUARANTINE) for number in range(4)]
    receiver.limit = 800  # less than the list
    scene = Scene(receiver, *older)
    async with scene.running():
        await until_async(lambda: len(scene.reports.shown) == 4)
        # The list is due again: its parts wait behind the change of one of their nodes.
        receiver.status = 503
        scene.wall += RESYNC + 1

        def parts() -> int:
            return sum(message.kind == "part" for message in scene.executor.delivery.waiting("slurm"))

        await until_async(lambda: parts() >= 2)
        newer = decision(3, Mark.SUSPECT, since=NOW + 60.0)
        scene.executor.desired([newer])
        scene.reports.written.clear()
        receiver.status = 200
        await until_async(lambda: not scene.executor.delivery.waiting("slurm"))
    assert len(scene.reports.written) == 4
    assert ("uid-3", newer.record) in scene.reports.written
    assert receiver.drained["node-3"] == {"suspect"}


async def test_a_release_before_the_first_list_is_reported(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, decision(0), decision(1, Mark.SUSPECT), epoch=2)
    async with scene.running():
        await until_async(lambda: len(scene.reports.shown) == 2)
        assert scene.reports.shown["uid-0"] == MarkRecord()
        scene.wall += RESYNC + 1
        await until_async(lambda: len(receiver.bodies) == 2)
    assert [[node["node"] for node in body["nodes"]] for body in receiver.bodies] == [
        ["node-0", "node-1"],
        ["node-1"],
    ]
