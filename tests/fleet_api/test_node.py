from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.node import NodeView, ReleaseWaitView
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.text.node import node_view
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from nodeguard.model.policy import Hold, Mode, SoakPeriod, TopologyLabels
from nodeguard.wire.report import UnreadableTargets
from tests.cli.fleet_output import look
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign, in_order

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0)
LONG = replace(AT_ONCE, soak=SoakPeriod(600.0, 28_800.0, 86_400.0))


def marked(policy: Any = LONG, *more: Any) -> Fleet:
    fleet = Fleet(40, policy)
    fleet.report(0, finding(), *more)
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


def page(fleet: Fleet, number: int = 0) -> NodeView:
    view = describe_node(fleet.planner, LEADER, f"node-{number}", fleet.now)
    assert view is not None
    return view


def wait(fleet: Fleet) -> ReleaseWaitView:
    [mark] = page(fleet).marks
    return mark.wait


def test_a_mark_waits_for_its_check_to_find_nothing_then_to_prove_it_then_for_the_soak() -> None:
    fleet = marked()
    assert wait(fleet) == ReleaseWaitView("finding", "gpu-lost to pass (still failing)")
    fleet.report(0, proven=())
    fleet.carry_out()
    assert wait(fleet) == ReleaseWaitView("proof", "gpu-lost to pass on GPU 0000:3b:00 with fresh data")
    fleet.report(0)
    fleet.carry_out()
    fleet.after(100.0)
    fleet.carry_out()
    text = "the soak period to end, while gpu-lost continues to pass"
    assert wait(fleet) == ReleaseWaitView("soak", text, "2023-11-14T22:23:30Z", 500.0)
    fleet.after(500.0)
    fleet.carry_out()
    view = page(fleet)
    assert view.marks == ()
    [charge] = view.charges
    assert (charge.check, charge.ended, charge.count) == ("gpu-lost", "2023-11-14T22:23:30Z", 1)


def test_the_targets_without_proof_are_named() -> None:
    fleet = Fleet(3)
    slots = tuple(f"gpu/0000:{bus}:00" for bus in ("3b", "3c", "3d", "3e", "3f", "40"))
    fleet.report(0, finding(target="node", targets=slots))
    fleet.after(10.0)
    fleet.carry_out()
    fleet.report(0, proven=(in_order(targets=slots[:1]),))
    fleet.carry_out()
    assert wait(fleet).message == (
        "gpu-lost to pass on GPU 0000:3c:00, GPU 0000:3d:00, GPU 0000:3e:00, GPU 0000:3f:00 and 1 more with fresh data"
    )


def test_marks_wait_for_holds_reports_and_removed_checks() -> None:
    fleet = marked()
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, HOLD_ANNOTATION: "alice"})
    fleet.carry_out()
    assert wait(fleet).on == "hold"
    fleet = marked()
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, MAINTENANCE_ANNOTATION: "rack move"})
    fleet.carry_out()
    assert wait(fleet) == ReleaseWaitView(
        "maintenance", "maintenance to end (rack move), and its check to pass after it"
    )
    fleet = marked()
    fleet.reports.pop("uid-0")
    fleet.after(60.0)
    fleet.carry_out()
    assert wait(fleet).on == "silence"
    view = page(fleet)
    assert (view.health, view.reported) == ("unknown", "fatal")
    expected = (True, False, 60.0, "2023-11-14T22:13:30Z")
    assert (view.stale, view.health_known, view.last_report_age, view.last_report) == expected
    fleet = marked()
    fleet.planner.set_policy(replace(LONG, holds=(Hold(checks=("gpu-lost",)),)))
    fleet.issue()
    assert wait(fleet) == ReleaseWaitView("write", "the write that removes it")
    fleet = Fleet(3, LONG)
    fleet.report(0, finding("site-fans"))
    fleet.after(10.0)
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    assert wait(fleet).on == "check"
    fleet.report(1, proven=(in_order(("site-fans",)),))
    fleet.carry_out()
    assert wait(fleet).on == "proof"


def test_marks_to_be_written_and_removed_are_shown() -> None:
    fleet = Fleet(3)
    fleet.report(0, finding())
    fleet.after(10.0)
    fleet.plan()
    assert page(fleet).marks == ()
    plan = fleet.issue()
    assert [mark.written for mark in page(fleet).marks] == [False]
    fleet.write(plan)
    assert [mark.written for mark in page(fleet).marks] == [True]
    fleet.report(0)
    fleet.issue()
    [mark] = page(fleet).marks
    assert (mark.wait, mark.written) == (ReleaseWaitView("write", "the write that removes it"), True)


def test_findings_have_the_decisions_on_their_mark_requests() -> None:
    fleet = Fleet(4, replace(AT_ONCE, holds=(Hold(checks=("gpu-ecc",), reason="false alarms"),)))
    slots = [f"gpu/0000:{bus}:00" for bus in ("3b", "3c", "3d", "3e")]
    fleet.report(
        0,
        finding("gpu-lost", slots[0]),
        finding("gpu-ecc", slots[1]),
        finding("gpu-hot", slots[2], health=Health.WARNING),
        finding("gpu-lost", slots[3], data_status=DataStatus.STALE, note="seen once"),
    )
    fleet.after(10.0)
    fleet.carry_out()
    view = page(fleet)
    assert [(item.state, item.reason) for item in view.findings] == [
        (IncidentState.MARKED, ""),
        (IncidentState.WITHHELD, "check gpu-ecc is on hold: false alarms"),
        (None, "a warning marks nothing"),
        (None, "marks nothing while it is stale"),
    ]
    assert view.findings[0].evidence == ("nvml: gone",)
    assert view.findings[0].age == 70.0
    [withheld] = view.withheld
    assert (withheld.mark, withheld.check, withheld.reason) == (
        Mark.QUARANTINE, "gpu-ecc", "check gpu-ecc is on hold: false alarms",
    )  # fmt: skip


def test_observe_mode_shows_requests_as_dry_run() -> None:
    fleet = marked(replace(AT_ONCE, mode=Mode.OBSERVE))
    view = page(fleet)
    assert (view.marks, [item.check for item in view.would_mark]) == ((), ["gpu-lost"])
    assert view.findings[0].state == IncidentState.DRY_RUN


def test_a_node_has_the_budgets_of_its_placement_and_its_checks() -> None:
    fleet = marked(replace(LONG, topologies=(TopologyLabels("rack", ("rack",)),)))
    view = page(fleet)
    assert view.domains == ("rack/r0",)
    assert [(item.name, item.used) for item in view.budgets] == [
        ("fleet", 1.0), ("pool/", 1.0), ("domain/rack/r0", 1.0), ("check/gpu-lost", 1),
    ]  # fmt: skip
    fleet.report(9, finding(health=Health.SUSPECT))
    fleet.after(10.0)
    fleet.carry_out()
    assert ("suspect", 1.0) in [(item.name, item.used) for item in page(fleet, 9).budgets]
    assert page(fleet, 20).budgets[-1].name == "domain/rack/r2"


def test_devices_cordons_and_unknown_taints_are_shown() -> None:
    fleet = Fleet(3)
    fleet.publish(0)
    fleet.report(0, finding())
    fleet.change(1, taints=(foreign(), foreign("nodeguard.dev/quarantine", "x")), unschedulable=True)
    fleet.after(10.0)
    fleet.carry_out()
    [mark] = page(fleet).marks
    assert (mark.device, mark.target) == ("gpu-0", "gpu/0000:3b:00")
    [charge] = page(fleet).charges
    assert charge.device == "gpu-0"
    assert (page(fleet, 1).unknown_taints, page(fleet, 1).cordoned_by_user) == (
        ("nodeguard.dev/quarantine=x",),
        True,
    )
    # The first line says it: all checks passed, and no work is scheduled to the node.
    assert node_view(page(fleet, 1)).title == (
        "OK node-1: tainted, but not by nodeguard (nodeguard.dev/quarantine=x); all checks passed; "
        "cordoned by an operator"
    )


def test_a_refused_record_is_shown() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding())
    fleet.after(10.0)
    fleet.carry_out()
    cluster, tainted = fleet.planner.cluster, replace(fleet.nodes["uid-0"], annotations={})
    record = cluster.observed("uid-0").records.node
    cluster.update_node(tainted)
    cluster.record_refused("uid-0", record, "Too long: may not be more than 262144 bytes")
    fleet.see(tainted)
    fleet.planner.state.update_observed("uid-0", cluster.observed("uid-0"))
    view = page(fleet)
    assert [mark.mark for mark in view.marks] == [Mark.QUARANTINE]
    assert view.record_problem == "Too long: may not be more than 262144 bytes"
    [line] = [line for line in look(node_view(view), 400).splitlines() if line.startswith("  record")]
    assert "the record of the marks is refused: remove annotations of the Node: Too long" in line


def test_unreadable_sources_are_shown() -> None:
    fleet = Fleet(2)
    unread = (UnreadableTargets("nvml", "gpu.ecc", "it hangs", ("gpu/0000:3b:00",)),)
    report = replace(fleet.reports["uid-0"], unreadable=unread, agent="0.1.0", data_status=DataStatus.UNKNOWN)
    fleet.planner.record_report("uid-0", report, fleet.now)
    view = page(fleet)
    assert [(item.source, item.reason) for item in view.unreadable] == [("nvml", "it hangs")]
    expected = ("0.1.0", DataStatus.UNKNOWN, True, 0.0)
    assert (view.agent_version, view.data_status, view.health_known, view.last_report_age) == expected


def test_a_node_without_a_report_is_unknown() -> None:
    fleet = marked()
    fleet.reports.clear()
    fleet.restart()
    fleet.carry_out()
    view = page(fleet)
    assert (view.health_known, view.last_report, view.last_report_age, view.stale) == (False, "", None, True)
    assert (view.health, view.reported) == ("unknown", "")
    assert wait(fleet).on == "silence"


def test_before_the_first_plan_a_mark_has_not_been_evaluated() -> None:
    fleet = marked()
    reports = dict(fleet.reports)
    fleet.reports.clear()
    fleet.restart()
    text = "the aggregator to evaluate it, which it has not done since it started"
    assert wait(fleet) == ReleaseWaitView("evaluation", text)
    fleet.reports.update(reports)
    fleet.restart()
    assert wait(fleet).on == "finding"
    fleet.report(0)
    assert wait(fleet).on == "evaluation"
    fleet.carry_out()
    assert wait(fleet).on == "soak"


def test_every_node_has_a_summary() -> None:
    fleet = marked()
    fleet.reports.pop("uid-1")
    fleet.change(2, annotations={HOLD_ANNOTATION: "alice"})
    fleet.after(60.0)
    view = {item.node: item for item in list_nodes(fleet.planner, fleet.now).nodes}
    assert len(view) == 40
    assert (view["node-0"].health, view["node-0"].marks) == ("fatal", (Mark.QUARANTINE,))
    assert (view["node-1"].health, view["node-1"].stale) == ("unknown", True)
    assert view["node-2"].hold
    assert list(view) == sorted(view)


@pytest.mark.parametrize("name", ["", "node-40"])
def test_an_unknown_node_has_no_placement(name: str) -> None:
    fleet = Fleet(2)
    assert describe_node(fleet.planner, LEADER, name, fleet.now) is None


def test_a_finding_has_the_commands_of_its_action() -> None:
    [found] = page(marked()).findings
    assert found.how[1] == "kubectl drain node-0 --ignore-daemonsets --delete-emptydir-data"
    assert any("nvidia-smi --gpu-reset" in command for command in found.how)
