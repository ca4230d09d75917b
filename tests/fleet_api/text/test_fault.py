"""Cards of the faults of a node: what belongs to one fault, and how each is shown."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.schema.node import NodeView
from nodeguard.fleet_api.text.fault import fault_section, node_faults
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.view import Field, Subject, View
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.policy import Hold
from tests.aggregator.pages.scenes import CATALOGUE
from tests.cli.fleet_output import LEADER, explained, look
from tests.fleet.leaves import ENFORCED, down, wait
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import AT_ONCE, Fleet, finding

GPU, OTHER = "gpu/0000:3b:00", "gpu/0000:9a:00"


def view_of(fleet: Fleet) -> NodeView:
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert view is not None
    return view


def cards(fleet: Fleet) -> list[tuple[list[str], list[str], str]]:
    """Return the findings, the marks and the incident's cause of each card."""
    return [
        (
            [item.check for item in fault.findings],
            [f"{mark.mark} for {mark.check}" for mark in fault.marks],
            fault.incident.cause if fault.incident else "",
        )
        for fault in node_faults(view_of(fleet))
    ]


def test_the_findings_on_a_part_are_one_fault_with_its_marks_and_its_incident() -> None:
    fleet = Fleet(40)
    fleet.report(
        0,
        finding("gpu-ecc", GPU, health=Health.WARNING),
        finding("gpu-hot", OTHER, health=Health.WARNING),
        finding("gpu-lost", GPU),
        finding("nvlink-down", f"{GPU}/nvlink/3", health=Health.SUSPECT),
    )
    fleet.carry_out()
    assert cards(fleet) == [
        (["gpu-lost", "nvlink-down", "gpu-ecc"], ["quarantine for gpu-lost"], "gpu-lost"),
        (["gpu-hot"], [], "gpu-hot"),
    ]


def test_each_check_of_the_node_itself_is_a_fault_of_its_own() -> None:
    fleet = Fleet(40)
    fleet.report(0, finding("clock-wrong", "node"), finding("memory-lost", "node", health=Health.WARNING))
    fleet.carry_out()
    assert [checks for checks, _, _ in cards(fleet)] == [["clock-wrong"], ["memory-lost"]]


def test_a_fault_that_is_over_has_a_card_while_its_mark_is_left() -> None:
    fleet = Fleet(40)
    fleet.report(0, finding("gpu-lost", GPU))
    fleet.carry_out()
    fleet.report(0, finding("gpu-hot", OTHER, health=Health.WARNING), proven=())
    fleet.carry_out()
    assert cards(fleet) == [(["gpu-hot"], [], "gpu-hot"), ([], ["quarantine for gpu-lost"], "gpu-lost")]
    assert "QUARANTINE  gpu-lost - GPU 0000:3b:00" in explained(fleet, 0)


def test_a_card_names_the_part_the_mark_of_each_finding_and_an_action_once() -> None:
    fleet = Fleet(40, replace(AT_ONCE, holds=(Hold(checks=("gpu-ecc",), reason="false alarms"),)))
    hardware = Hardware(5, "1650522100005", "", 6, "slot 3")
    fleet.report(
        0,
        finding("gpu-lost", GPU, hardware=hardware),
        finding("gpu-ecc", GPU, hardware=hardware, message="12 errors"),
    )
    fleet.carry_out()
    text = explained(fleet, 0, 400)
    assert text.count("kubectl drain") == 1
    [first, also] = text.partition("\n\n")[2].split("  also ")
    assert first.startswith("FATAL  gpu-lost - GPU 5 (0000:3b:00, serial 1650522100005, module 6, slot 3)\n")
    assert "  mark        quarantine, set 2023-11-14 22:13:20 UTC, just now\n" in first
    assert "FATAL gpu-ecc - GPU 5 (0000:3b:00" in also
    assert "  message     12 errors\n" in also
    assert "  mark        withheld: check gpu-ecc is on hold: false alarms\n" in also
    assert "  see         nodeguard explain gpu-lost, nodeguard explain gpu-ecc\n" in also


def test_findings_with_other_remedies_show_what_to_do_for_each() -> None:
    fleet = Fleet(40)
    fleet.report(0, finding("gpu-lost", GPU), finding("gpu-ecc", GPU))
    fleet.carry_out()
    [fault] = node_faults(view_of(fleet))
    remedies = "Reseat the GPU.", "Reseat the GPU.", "Replace the GPU."
    for first, second in pairwise(remedies):
        texts = zip(fault.findings, (first, second), strict=True)
        findings = tuple(replace(found, remedy=remedy) for found, remedy in texts)
        shown = look(View((fault_section(fault._replace(findings=findings)),)))
        assert [shown.count(remedy) for remedy in set(remedies)] == [
            int(remedy in (first, second)) for remedy in set(remedies)
        ]


def test_what_to_do_is_shown_where_the_domain_explains_the_first_finding() -> None:
    fleet = Fleet(40)
    fleet.report(0, finding("gpu-lost", GPU), finding("gpu-ecc", GPU))
    fleet.carry_out()
    [fault] = node_faults(view_of(fleet))
    explained_by_domain = replace(fault.findings[0], state=IncidentState.OPEN)
    section = fault_section(fault._replace(findings=(explained_by_domain, *fault.findings[1:])))
    assert look(View((section,))).count("kubectl drain") == 1


def test_the_faults_that_a_degraded_domain_explains_are_one_card_with_its_remedy() -> None:
    fleet = leaves(80, ENFORCED)
    ports = down(), replace(down(), target="port/mlx5_1/1")
    for number in range(8):
        fleet.report(number, *ports, *([finding("gpu-lost", GPU)] if not number else []))
    wait(fleet, 120.0)
    assert [checks for checks, _, _ in cards(fleet)] == [["port-down", "port-down"], ["gpu-lost"]]
    card, other = map(fault_section, node_faults(view_of(fleet)))
    text = look(View((card,)), 400)
    assert text.count("  cause       fabric/p0/r0 is degraded: nothing to repair at this node\n") == 1
    assert text.count("  action      The network team acts. Look first: ") == 1
    assert Subject("domain", "fabric/p0/r0") in [row.about for row in card.rows if isinstance(row, Field)]
    assert "kubectl" not in text
    assert "kubectl" in look(View((other,)))


def test_an_own_mark_stays_on_the_card_of_the_fault_that_a_degraded_domain_explains() -> None:
    fleet = leaves(80, ENFORCED)
    fleet.report(0, down())
    wait(fleet, 60.0)
    view = view_of(fleet)
    for number in range(1, 8):
        fleet.report(number, down())
    wait(fleet, 60.0)
    with_mark = replace(view_of(fleet), marks=view.marks)
    [fault] = node_faults(with_mark)
    assert [mark.mark for mark in fault.marks] == ["quarantine"]
    assert fault.incident is not None
    assert fault.incident.domain == "fabric/p0/r0"


def test_the_mark_of_a_fault_may_cover_that_of_another_one() -> None:
    fleet = Fleet(40)
    fleet.report(0, finding("gpu-lost", GPU), finding("gpu-ecc", OTHER, health=Health.SUSPECT))
    fleet.carry_out()
    assert "  mark        covered by another mark of the node\n" in explained(fleet, 0)


def test_a_card_names_who_acknowledged_its_incident() -> None:
    fleet = Fleet(40)
    fleet.report(0, finding("gpu-lost", GPU))
    fleet.carry_out()
    [incident] = fleet.planner.all_incidents()
    service = replace(LEADER, decisions={incident.name: OperatorDecision(incident.name, "alice")})
    view = describe_node(fleet.planner, service, "node-0", fleet.now)
    assert view is not None
    assert f"  ack         by alice\n  incident    {incident.name}\n" in look(node_view(view))


def test_the_remedy_of_the_check_is_left_out_for_another_action() -> None:
    checks = {check.id: check for check in CATALOGUE.checks}
    fleet = Fleet(40)
    fleet.report(
        0,
        finding("gpu-lost", GPU, action=Action.REBOOT_NODE),
        finding("gpu-lost", OTHER, action=Action.CONTACT_SUPPORT),
    )
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now, checks)
    assert view is not None
    remedies = [item.remedy for item in view.findings]
    assert (remedies[0].startswith("Reboot the node."), remedies[1]) == (True, "")
