"""Which nodes take work, and which of them are faulty."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.capacity import CapacityView, ReasonCount, WorkState
from nodeguard.fleet_api.schema.status import MarkCount
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.phrases import faulty_text, gpus_text
from nodeguard.fleet_api.text.status import headline
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Mode, ModeRule, Policy
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.cli.fleet_output import LEADER
from tests.fleet.leaves import ENFORCED, wait
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.policies import diagnosis_policy

ONE = replace(AT_ONCE, budget=Budget(0.1, 0.0, 1.0, 1.0, 1.0, check=CheckLimit(10_000, 600.0, 10_000)))
OBSERVED = replace(AT_ONCE, mode=Mode.OBSERVE)


def lost(policy: Policy = AT_ONCE, faults: int = 3, size: int = 12, **more: Any) -> Fleet:
    """A lost GPU on each of the first nodes."""
    fleet = Fleet(size, policy)
    for number in range(faults):
        fleet.report(number, finding(**more))
    fleet.after(5.0)
    return fleet


def view(fleet: Fleet) -> CapacityView:
    return fleet_status(fleet.planner, LEADER, fleet.now).capacity


def work(fleet: Fleet) -> list[WorkState]:
    """Return the state of each node, as the list of nodes has it."""
    nodes = {node.node: node.work for node in list_nodes(fleet.planner, fleet.now).nodes}
    return [nodes[f"node-{number}"] for number in range(len(nodes))]


def test_each_node_is_counted_once() -> None:
    fleet = lost(ONE)
    fleet.change(3, unschedulable=True)
    fleet.change(4, ready=False)
    fleet.carry_out()
    counts = {"working": 7, "unknown": 0, "faulty": 2, "marked": 1, "cordoned": 1, "not-ready": 1}
    assert view(fleet).nodes == counts
    assert work(fleet)[:6] == ["marked", "faulty", "faulty", "cordoned", "not-ready", "working"]


def test_a_node_of_unknown_health_is_not_taken_for_a_working_one() -> None:
    fleet = lost()
    fleet.carry_out()
    fleet.after(600.0, quiet={"uid-0", "uid-5"})
    assert work(fleet)[:7] == ["marked", "marked", "marked", "working", "working", "unknown", "working"]
    assert view(fleet).nodes[WorkState.UNKNOWN] == 1


def test_gpus_are_in_service_unless_they_or_their_nodes_are_kept_from_all_work() -> None:
    fleet = Fleet(12)
    fleet.publish(3)
    fleet.report(2, finding("gpu-ecc", health=Health.SUSPECT))
    for number in (0, 3):
        fleet.report(number, finding())
    fleet.after(5.0)
    assert gpus_text(view(fleet)) == "96 of 96 in service"
    fleet.carry_out()
    # Node 0 is quarantined, and of node 3 one GPU. Node 2 takes work of its own.
    assert work(fleet)[:4] == ["marked", "working", "marked", "working"]
    assert gpus_text(view(fleet)) == "87 of 96 in service"
    fleet.change(4, unschedulable=True)
    fleet.change(5, ready=False)
    assert gpus_text(view(fleet)) == "71 of 96 in service"


@pytest.mark.parametrize("counted", [8, 7], ids=["counted", "not-counted"])
def test_a_lost_gpu_is_counted_and_not_in_service(counted: int) -> None:
    """A node that has lost a GPU may count it, as until its device plugin restarts, or not."""
    fleet = Fleet(12, OBSERVED)
    present = {f"gpu/0000:{0x3C + number:02x}:00": ReportedComponent(f"GPU-{number}") for number in range(7)}
    fleet.change(0, gpus=counted)
    fleet.report(0, finding(), inventory=Inventory(components=present))
    fleet.after(5.0)
    assert gpus_text(view(fleet)) == "95 of 96 in service"
    assert list_nodes(fleet.planner, fleet.now).nodes[0].gpus == 8
    page = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert page is not None
    assert page.gpus == 8


def test_nodes_without_gpus_have_none_in_service() -> None:
    fleet = Fleet(0)
    fleet.add(0, gpus=0)
    assert gpus_text(view(fleet)) == ""


def test_a_cordoned_node_takes_no_work_and_is_not_faulty() -> None:
    fleet = lost(OBSERVED)
    fleet.change(0, unschedulable=True)
    fleet.change(1, ready=False)
    fleet.carry_out()
    assert work(fleet)[:4] == ["cordoned", "not-ready", "faulty", "working"]


def test_a_suspect_mark_keeps_no_work_off_a_node_that_should_be_quarantined() -> None:
    fleet = Fleet(12)
    suspect = finding("gpu-ecc", health=Health.SUSPECT)
    fleet.report(0, suspect)
    fleet.after(5.0)
    fleet.carry_out()
    assert work(fleet)[0] == "marked"
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, HOLD_ANNOTATION: "alice"})
    fleet.report(0, suspect, finding())
    fleet.after(5.0)
    fleet.carry_out()
    assert list_nodes(fleet.planner, fleet.now).nodes[0].marks == ("suspect",)
    assert work(fleet)[0] == "faulty"


@pytest.mark.parametrize(
    ("gpus", "left", "text"),
    [(8, 7, "95 of 96 in service"), (8, 3, "91 of 96 in service"), (56, 7, "144 of 144 in service")],
)
def test_a_gpu_that_vanished_is_not_in_service(gpus: int, left: int, text: str) -> None:
    """A Node with MIG counts instances."""
    fleet = Fleet(12, OBSERVED)
    present = {
        f"gpu/0000:{0x3C + number:02x}:00": ReportedComponent(f"GPU-{number}") for number in range(left)
    }
    fleet.change(0, gpus=gpus)
    fleet.report(0, finding("gpu-count", target="node"), inventory=Inventory(components=present))
    fleet.after(5.0)
    assert gpus_text(view(fleet)) == text


def test_a_gpu_without_a_fault_is_not_lost() -> None:
    fleet = Fleet(12, OBSERVED)
    present = {f"gpu/0000:{0x3C + number:02x}:00": ReportedComponent(f"GPU-{number}") for number in range(8)}
    warning = finding("gpu-hot", target="gpu/0000:99:00", health=Health.WARNING)
    fleet.report(0, warning, inventory=Inventory(components=present))
    fleet.after(5.0)
    assert gpus_text(view(fleet)) == "96 of 96 in service"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (ONE, "a budget has reached its limit"),
        (OBSERVED, "the check is not enforced"),
        (replace(AT_ONCE, pause=True), "new marks are paused"),
        (replace(AT_ONCE, grace=GracePeriods(300.0, 300.0, 300.0)), "the grace period has not ended"),
    ],
    ids=["budget", "observe", "pause", "grace"],
)
def test_the_reason_is_counted_in_a_few_words(policy: Policy, reason: str) -> None:
    fleet = lost(policy)
    fleet.carry_out()
    faulty = 2 if policy == ONE else 3
    assert view(fleet).reasons == (ReasonCount(reason, faulty, faulty),)
    assert faulty_text(view(fleet)) == f"{faulty} faulty nodes: {reason}"


def test_a_mark_that_is_not_observed_keeps_no_work_away() -> None:
    fleet = lost()
    plan = fleet.issue()
    fleet.issue()
    assert faulty_text(view(fleet)) == "3 faulty nodes: the mark is being written"
    fleet.write(plan)
    fleet.issue()
    assert view(fleet).faulty == 0


def test_a_node_with_two_faults_counts_once_by_the_worse_one() -> None:
    rules = (ModeRule(Mode.OBSERVE, checks=("gpu-ecc",)),)
    fleet = Fleet(12, replace(AT_ONCE, pause=True, modes=rules))
    fleet.report(0, finding("gpu-ecc", "gpu/0000:3c:00", health=Health.SUSPECT), finding())
    fleet.report(1, finding("gpu-ecc", health=Health.SUSPECT))
    fleet.after(5.0)
    fleet.carry_out()
    text = "2 faulty nodes: new marks are paused (1), the check is not enforced (1)"
    assert faulty_text(view(fleet)) == text


def test_the_red_line_replaces_the_withheld_marks_of_the_headline() -> None:
    fleet = lost(ONE)
    fleet.change(1, annotations={HOLD_ANNOTATION: "alice"})
    fleet.carry_out()
    assert (
        faulty_text(view(fleet))
        == "2 faulty nodes: a budget has reached its limit (1), the node is on hold (1)"
    )
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    assert str(headline(status)) == "FATAL 12 nodes: 3 fatal."
    # Of a suppressed check, for example: its nodes are not among those of the line.
    withheld = replace(status, withheld=MarkCount(6, 6))
    assert str(headline(withheld)) == "FATAL 12 nodes: 3 fatal; 6 marks withheld."
    for number in (1, 2):
        fleet.change(number, unschedulable=True)
    fleet.carry_out()
    assert view(fleet).faulty == 0


def test_a_suppressed_check_makes_no_node_faulty() -> None:
    """The diagnosis takes its findings for false alarms."""
    fleet = leaves(120, replace(ENFORCED, diagnosis=diagnosis_policy()))
    wait(fleet, 700.0)
    for number in (0, 9, 41, 49, 89, 97):
        fleet.report(number, finding(age=0.0))
    wait(fleet, 20.0)
    status = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (status.withheld.nodes, status.capacity.faulty) == (6, 0)
    assert str(headline(status)) == "FATAL 120 nodes: 6 fatal; 6 marks withheld."


def test_an_injected_fault_is_none() -> None:
    fleet = lost(OBSERVED, faults=0)
    fleet.report(0, injected=(finding(),))
    fleet.carry_out()
    assert view(fleet).faulty == 0


def test_advised_marks_count_as_marks() -> None:
    fleet = Fleet(2)
    fleet.restart(IncidentState.ADVISED)
    fleet.report(0, finding())
    fleet.carry_out()
    assert work(fleet) == ["marked", "working"]
