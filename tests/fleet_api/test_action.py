"""Tests for nodeguard.fleet_api.action, and for actions in the view of a node."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet_api.action import MAX_ACTIONS, list_actions, node_actions
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.text.node import node_view
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.pod import PodKey
from tests.cli.fleet_output import LEADER, look
from tests.fleet.scene import Fleet

FLEET = Fleet(2)
NOW = FLEET.now
AT = int(NOW.wall)
CLEAR = NodeAction(
    ActionKind.CLEAR, "node-0", "uid-0", "ann at 22:10", AT - 120, incident="lost",
    findings=(FindingKey("gpu-lost", "gpu/0000:3b:00"), FindingKey("gpu-ecc", "gpu/0000:3b:00")),
)  # fmt: skip
DETACH = NodeAction(
    ActionKind.DETACH_GPUS, "node-0", "uid-0", "bob at 22:12", AT - 60, gpus=("5",), seconds=1800,
    state=ActionState.RUNNING,
)  # fmt: skip


def actions_shown(*actions: NodeAction) -> list[str]:
    view = describe_node(FLEET.planner, replace(LEADER, actions=actions), "node-0", NOW)
    assert view is not None
    lines = look(node_view(view), 400).splitlines()
    return [line.removeprefix("  action      ") for line in lines if "action" in line or "more:" in line]


def test_a_node_shows_who_requested_an_action_and_the_answer() -> None:
    refused = replace(CLEAR, state=ActionState.FAILED, message="broken", changed_at=AT - 90)
    assert actions_shown(refused, DETACH, replace(DETACH, node="node-1", uid="uid-1")) == [
        "detach from GPU 5 for 30 min, requested by bob at 22:12, 1 min ago: the agent has not answered yet",
        "clear gpu-lost on GPU 0000:3b:00 and 1 more finding, requested by ann at 22:10, 2 min ago: failed: broken",
    ]


def test_a_request_has_only_its_last_attempt() -> None:
    first = replace(CLEAR, state=ActionState.UNKNOWN, changed_at=AT - 100)
    second = replace(CLEAR, attempt=2, state=ActionState.SUCCEEDED, changed_at=AT - 50)
    again = replace(CLEAR, request="ann at 22:13", created_at=AT - 10)
    [latest, earlier] = node_actions(replace(LEADER, actions=(second, again, first)), "uid-0", NOW)[0]
    assert (latest.state, latest.request, latest.age) == (ActionState.RESERVED, again.request, 10.0)
    assert (earlier.state, earlier.changed_age) == (ActionState.SUCCEEDED, 50.0)


def test_requests_that_fail_again_are_shown_once_with_their_number_and_the_last_reason() -> None:
    failed = [
        replace(CLEAR, request=f"ann at 22:1{number}", created_at=AT - 100 + number, state=ActionState.FAILED,
                message=f"refused {number}")
        for number in range(3)
    ]  # fmt: skip
    other = replace(failed[0], findings=CLEAR.findings[1:], request="bob at 22:09", created_at=AT - 150)
    done = replace(CLEAR, request="eve at 22:08", created_at=AT - 200, state=ActionState.SUCCEEDED)
    before = replace(failed[0], request="eve at 22:07", created_at=AT - 300)
    finding = "clear gpu-lost on GPU 0000:3b:00 and 1 more finding"
    assert actions_shown(*failed, other, done, before) == [
        f"{finding}, requested 3 times, the last by ann at 22:12, 1 min 38 s ago: failed: refused 2",
        "clear gpu-ecc on GPU 0000:3b:00, requested by bob at 22:09, 2 min 30 s ago: failed: refused 0",
        f"{finding}, requested by eve at 22:08, 3 min 20 s ago: succeeded",
        f"{finding}, requested by eve at 22:07, 5 min ago: failed: refused 0",
    ]


def test_the_latest_actions_are_shown_and_the_others_counted() -> None:
    requests = [replace(DETACH, request=f"bob, {number}", created_at=AT - number) for number in range(10)]
    shown = actions_shown(*requests)
    assert len(shown) == 9
    assert "requested by bob, 0, just now" in shown[0]
    assert shown[-1].strip() == "and 2 more: nodeguard history node-0"


def test_a_node_shows_its_unfinished_actions_first() -> None:
    ended = replace(DETACH, state=ActionState.SUCCEEDED)
    requests = [replace(ended, request=f"bob, {number}", created_at=AT - number) for number in range(10)]
    assert "evict pod team-a/train-0" in actions_shown(*requests, replace(DRAIN, created_at=AT - 9000))[0]


def test_a_long_list_begins_with_the_unfinished_actions() -> None:
    ended = replace(DETACH, state=ActionState.SUCCEEDED)
    actions = [replace(ended, request=f"bob, {number}") for number in range(MAX_ACTIONS)]
    old = replace(CLEAR, created_at=AT - 9000)
    listed = list_actions(replace(LEADER, actions=(*actions, old)), NOW)
    assert (len(listed.actions), listed.omitted) == (MAX_ACTIONS, 1)
    assert listed.actions[0].name == old.key


DRAIN = NodeAction(
    ActionKind.DRAIN, "node-0", "uid-0", "quarantine of the node", AT - 60, requested_by="alice", begun_at=AT - 50,
    pods=tuple(PodKey("team-a", f"train-{number}", f"{number}") for number in range(3)), state=ActionState.RUNNING,
)  # fmt: skip


def test_a_running_drain_counts_the_pods_that_are_gone() -> None:
    reason = "team-a/train-2 is still ending"
    report = DrainReport(
        "node-0",
        "uid-0",
        "node",
        ("gpu-lost",),
        NOW.wall,
        DrainState.RUNNING,
        reason,
        DRAIN.pods,
        remaining=("2",),
    )
    service = replace(LEADER, actions=(DRAIN,), drains=(report,))
    [listed] = list_actions(service, NOW).actions
    assert (listed.carried_out, listed.parts, listed.message) == (2, 3, reason)
    view = describe_node(FLEET.planner, service, "node-0", NOW)
    assert view is not None
    text = look(node_view(view), 400)
    assert (
        "for the quarantine of the node, requested by alice, 1 min ago: running, 2 of 3 pods gone: "
        f"{reason}\n" in text
    )
    assert text.count(reason) == 1
    assert text.count("pods gone") == 1
    standby = replace(service, drains=())
    assert list_actions(standby, NOW).actions[0].carried_out == 0
