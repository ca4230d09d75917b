"""Tests for the drains of a fleet in its status."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.pages.drains import drains_section
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet_api.drain import drain_views
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.schema.drain import DrainPreview
from nodeguard.fleet_api.schema.status import VERSION, FleetStatus
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.drain import preview_view
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.text.status import status_view
from nodeguard.fleet_api.text.wording import api_time
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.drain import DrainMode
from nodeguard.model.instant import rfc3339
from nodeguard.model.pod import PodGroupKey, PodKey
from tests.cli.fleet_output import LEADER, facts, look
from tests.fleet.scene import AT_ONCE, Fleet, finding

PODS = (PodKey("team-a", "train-0", "uid-7"), PodKey("team-a", "train-1", "uid-8"))


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """Eight nodes of which the first seven are quarantined."""
    fleet = Fleet(8)
    for number in range(7):
        fleet.report(number, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


def drain(fleet: Fleet, number: int, state: DrainState, reason: str = "") -> DrainReport:
    node, uid = f"node-{number}", f"uid-{number}"
    return DrainReport(node, uid, "node", ("gpu-lost",), fleet.wall, state, reason, PODS)


def failed(fleet: Fleet, number: int) -> NodeAction:
    return NodeAction(
        ActionKind.DRAIN, f"node-{number}", f"uid-{number}", "quarantine of the node", int(fleet.wall), pods=PODS,
        state=ActionState.FAILED, carried_out=1, message="1 of 2 pods gone after 30min",
    )  # fmt: skip


def status_of(fleet: Fleet, drains: list[DrainReport], actions: list[NodeAction]) -> FleetStatus:
    service = replace(LEADER, drains=tuple(drains), actions=tuple(actions))
    return fleet_status(fleet.planner, service, fleet.now)


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ([], None),
        ([DrainState.RUNNING], "node node-0: evicts 2 pods (team-a/train-0, team-a/train-1): it ends"),
        (
            [DrainState.RUNNING, DrainState.WAITS, DrainState.WOULD_DRAIN],
            "1 running, 1 waiting, 1 in a dry run; node node-1: the work of the node stays for now: it ends",
        ),
        (
            [DrainState.RUNNING] * 7,
            "5 running, 2 more; node node-0: evicts 2 pods (team-a/train-0, team-a/train-1): it ends",
        ),
    ],
)
def test_the_status_counts_drains_and_names_one_that_waits(
    fleet: Fleet, states: list[DrainState], shown: str | None
) -> None:
    drains = [drain(fleet, number, state, "it ends") for number, state in enumerate(states)]
    assert facts(status_view(status_of(fleet, drains, []))).get("drains") == shown


def test_the_status_has_what_became_of_the_jobs_until_the_quarantine_is_released(fleet: Fleet) -> None:
    at = int(fleet.wall) - 60
    pods = tuple(PodKey("team-a", f"train-{n}", f"uid-of-pod-{n}", f"team-a/job-{n}") for n in range(7))
    drained = NodeAction(
        ActionKind.DRAIN, "node-0", "uid-0", "quarantine of the node", at, pods=pods,
        state=ActionState.SUCCEEDED, begun_at=at,
    )  # fmt: skip
    text = " ".join(look(status_view(status_of(fleet, [], [drained])), 400).split())
    names = ", ".join(f"team-a/job-{number}" for number in range(4))
    assert f"jobs {names} and 1 more: 1 of 1 pod gone, evicted by the drain of node-0 since " in text
    assert "1 min ago and 2 more jobs" in text
    released = status_of(fleet, [], [replace(drained, released_at=at + 30)])
    assert "jobs" not in facts(status_view(released))


@pytest.mark.parametrize(
    ("state", "text"),
    [(DrainState.WOULD_DRAIN, "dry run: it would evict 2 pods"), (DrainState.ANNOUNCED, "evicts 2 pods")],
)
def test_the_jobs_that_the_evictions_would_end_are_named(fleet: Fleet, state: DrainState, text: str) -> None:
    costly = replace(drain(fleet, 0, state), costs=("Job team-a/train would fail",))
    service = replace(LEADER, drains=(costly,))
    node = describe_node(fleet.planner, service, "node-0", fleet.now)
    assert node is not None
    shown = facts(node_view(node))
    assert shown["drain"].startswith(text)
    assert shown["cost"] == "Job team-a/train would fail"
    others = [
        replace(costly, costs=tuple(f"Job team-a/{number}{name}" for name in "ab")) for number in range(3)
    ]
    waits = drain(fleet, 5, DrainState.WAITS, "a budget")
    status = status_view(status_of(fleet, [costly, *others, waits], []))
    assert "the work of the node stays for now" in facts(status)["drains"]
    printed = " ".join(look(status, 400).split())
    assert "cost Job team-a/train would fail cost Job team-a/0a" in printed
    assert "cost Job team-a/1b and 2 more" in printed


@pytest.mark.parametrize(
    ("mode", "number", "is_leader", "shown"),
    [
        (DrainMode.OBSERVE, 0, False, "only the leader shows it: nodeguard-b"),
        (DrainMode.OBSERVE, 0, True, None),
        (DrainMode.OBSERVE, 7, False, None),
        (DrainMode.DISABLED, 0, False, None),
    ],
    ids=["standby", "leader", "healthy node", "no drains"],
)
def test_a_standby_names_the_leader_as_it_knows_no_drain(
    mode: DrainMode, number: int, is_leader: bool, shown: str | None
) -> None:
    fleet = Fleet(8, replace(AT_ONCE, drain=replace(AT_ONCE.drain, mode=mode)))
    fleet.report(0, finding())
    fleet.after(10.0)
    fleet.carry_out()
    service = replace(LEADER, leader="nodeguard-b", is_leader=is_leader)
    node = describe_node(fleet.planner, service, f"node-{number}", fleet.now)
    assert node is not None
    assert facts(node_view(node)).get("drain") == shown


@pytest.mark.parametrize("state", [DrainState.RUNNING, DrainState.WOULD_DRAIN])
def test_the_gangs_that_leave_whole_are_named(fleet: Fleet, state: DrainState) -> None:
    gang = replace(drain(fleet, 0, state), pod_groups=(PodGroupKey("team-a", "train"),))
    pods = "2 pods (team-a/train-0, team-a/train-1), with all pods of PodGroup team-a/train"
    shown = facts(status_view(status_of(fleet, [gang], [])))["drains"]
    assert shown in (f"node node-0: evicts {pods}", f"node node-0: dry run: it would evict {pods}")
    [view] = drain_views([gang], fleet.now)
    preview = DrainPreview(VERSION, rfc3339(fleet.wall), "node-0", (view,), "")
    [line] = [text for text in facts(preview_view(preview)).values() if "2 pods" in text]
    assert line.endswith(" evicted, with all pods of PodGroup team-a/train")


def test_a_drain_with_notice_shows_its_time(fleet: Fleet) -> None:
    announced = replace(drain(fleet, 0, DrainState.ANNOUNCED), evict_at=fleet.wall + 60.0)
    pods, time = "2 pods (team-a/train-0, team-a/train-1)", rfc3339(fleet.wall + 60.0)
    shown = facts(status_view(status_of(fleet, [announced], [])))["drains"]
    assert shown == f"node node-0: evicts {pods} at {api_time(time)} or later"
    [view] = drain_views([announced], fleet.now)
    assert view.evict_at == time
    waits = drain(fleet, 1, DrainState.WAITS, "a budget")
    counted = facts(status_view(status_of(fleet, [announced, waits], [])))["drains"]
    assert counted.startswith("1 waiting, 1 announced; node node-1: ")
    dry = facts(
        status_view(status_of(fleet, [drain(fleet, 0, DrainState.WOULD_DRAIN, "after a notice of 2h")], []))
    )
    assert dry["drains"] == f"node node-0: dry run: it would evict {pods}: after a notice of 2h"


def test_a_drain_that_waits_for_a_limit_of_an_hour_shows_until_when(fleet: Fleet) -> None:
    limit = "5 of 5 drains began within an hour (drain.limits.newPerHour)"
    waits = replace(drain(fleet, 0, DrainState.WAITS, limit), limited_until=fleet.wall + 60.0)
    shown = f"{limit}, until {api_time(rfc3339(fleet.wall + 60.0))}"
    status = status_of(fleet, [waits], [])
    assert facts(status_view(status))["drains"] == f"node node-0: the work of the node stays for now: {shown}"
    assert shown in str(drains_section(status))


def test_a_failed_drain_is_named_first(fleet: Fleet) -> None:
    waits = drain(fleet, 0, DrainState.WAITS, "a budget")
    assert facts(status_view(status_of(fleet, [waits], [failed(fleet, 1)])))["drains"] == (
        "1 failed, 1 waiting; node node-1: it failed: 1 of 2 pods gone after 30min"
    )
    unread = replace(failed(fleet, 1), state=ActionState.UNKNOWN, message="refused")
    assert facts(status_view(status_of(fleet, [], [unread])))["drains"] == (
        "node node-1: its end is not known: refused"
    )
    many = status_of(fleet, [], [failed(fleet, number) for number in range(7)])
    assert [action.node for action in many.failed_drains] == [f"node-{number}" for number in range(5)]
    assert facts(status_view(many))["drains"].startswith("7 failed; node node-0: it failed: ")


def test_a_failed_drain_is_shown_until_the_quarantine_is_released(fleet: Fleet) -> None:
    released = replace(failed(fleet, 0), released_at=int(fleet.wall))
    unmarked, succeeded = failed(fleet, 7), replace(failed(fleet, 1), state=ActionState.SUCCEEDED)
    detach = replace(failed(fleet, 2), kind=ActionKind.DETACH_GPUS)
    assert status_of(fleet, [], [released, unmarked, succeeded, detach]).failed_drains == ()
