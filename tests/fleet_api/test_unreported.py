"""Nodes as the objects of their cluster show them, beside those of the aggregator that has the reports."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import asdict, replace

from nodeguard.cli.plugin.routes import REPORTED_FIELDS
from nodeguard.cli.render.resources import NODE_TABLE, resource_lines
from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.unreported import UnreportedNode, UnreportedSummary
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.unreported import describe_unreported, list_unreported
from nodeguard.model.incident import Incident
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Mode, Policy
from tests.cli.fleet_output import look, page
from tests.fleet import leaves
from tests.fleet.cluster_planner import ClusterPlanner
from tests.fleet.scene import AT_ONCE, CHECKS, Fleet, finding

READER = ServiceState("", is_leader=False, started=0.0)
NOT_READ = "health, and more: a role gives the right to read them"


def fleet_of(policy: Policy = AT_ONCE) -> Fleet:
    """Return a fleet with a marked node, one with a fault on hold, one that a person cordoned, and a healthy one."""
    fleet = Fleet(4, policy)
    fleet.report(0, finding())
    fleet.change(1, annotations={HOLD_ANNOTATION: "alice"})
    fleet.report(1, finding("gpu-ecc"))
    fleet.change(2, unschedulable=True)
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


def reader(fleet: Fleet, incidents: Iterable[Incident] | None = None) -> ClusterPlanner:
    """Return the planner of a person: with the Nodes and the incidents of a fleet only. incidents: None for all."""
    planner = ClusterPlanner(Policy(), CHECKS)
    planner.restore_incidents(fleet.planner.all_incidents() if incidents is None else incidents)
    for node in fleet.nodes.values():
        planner.observe_node(node)
    return planner


def summaries(fleet: Fleet) -> list[UnreportedSummary]:
    listed = list_unreported(reader(fleet), READER, fleet.now, NOT_READ)
    assert listed.not_read == NOT_READ
    return [node for node in listed.nodes if isinstance(node, UnreportedSummary)]


def described(fleet: Fleet, number: int = 0) -> UnreportedNode:
    node = describe_unreported(
        reader(fleet), READER, f"node-{number}", fleet.now, {}, NOT_READ, "False, GpuLost: gone"
    )
    assert node is not None
    return node


def test_a_list_has_what_objects_show_as_the_aggregator_does_and_nothing_of_reports() -> None:
    fleet = fleet_of()
    listed = list_nodes(fleet.planner, fleet.now).nodes
    different = {
        name
        for node, other in zip(summaries(fleet), listed, strict=True)
        for name, value in asdict(other).items()
        if getattr(node, name) != value
    }
    # A healthy node that takes work is of unknown health here.
    assert different == REPORTED_FIELDS - {"driver", "platform", "pending", "pool"} | {"work"}
    for node in summaries(fleet):
        assert (node.health, node.stale, node.findings, node.last_report_age) == ("unknown", None, 0, None)
    assert [node.work for node in summaries(fleet)] == ["marked", "unknown", "cordoned", "unknown"]


def test_the_table_has_no_column_of_reports() -> None:
    fleet = fleet_of()
    assert look(resource_lines(NODE_TABLE, summaries(fleet), 80, wide=False)) == page("""
        NODE    WORK      MARKS       WORST     AGE         NOTES
        node-0  marked    quarantine  gpu-lost  1 min 10 s  gpu-lost at gpu/0000:3b:00
        node-1  unknown   -           gpu-ecc   1 min 10 s  hold: alice; 1 mark withhel…
        node-2  cordoned  -           -         -
        node-3  unknown   -           -         -
    """)


def test_a_mark_without_an_incident_shows_its_check() -> None:
    fleet = fleet_of()
    fleet.wall += 60.0
    planner = reader(fleet, incidents=())
    [first, *_] = list_unreported(planner, READER, fleet.now, NOT_READ).nodes
    assert isinstance(first, UnreportedSummary)
    assert (first.worst, first.message, first.age) == ("gpu-lost", "", 60.0)
    node = describe_unreported(planner, READER, "node-0", fleet.now, {}, NOT_READ, "")
    assert node is not None
    text = look(node_view(node))
    assert "QUARANTINE  gpu-lost - GPU 0000:3b:00\n" in text
    assert "  waiting for what only the aggregator knows\n" in text


def test_a_node_in_full_has_its_marks_and_incidents_and_no_budgets_or_waits() -> None:
    fleet = fleet_of()
    node, other = described(fleet), describe_node(fleet.planner, READER, "node-0", fleet.now)
    assert other is not None
    assert [mark.wait.message for mark in node.marks] == ["what only the aggregator knows"]
    assert [replace(mark, wait=other.marks[0].wait) for mark in node.marks] == list(other.marks)
    [incident] = node.open_incidents
    assert (incident.name, incident.marks) == (other.incidents[0].name, node.marks)
    assert (node.health_known, node.findings, node.budgets, node.pool, node.domains) == (
        False,
        (),
        (),
        "",
        (),
    )


def test_the_text_of_a_marked_node() -> None:
    text = look(node_view(described(fleet_of())))
    assert text.startswith(
        page("""
        UNKNOWN  node-0: quarantined, no new work: gpu-lost.
          not read    health, and more: a role gives the right to read them
          condition   False, GpuLost: gone
          hardware    8 GPUs

        FATAL  gpu-lost - GPU 0000:3b:00 of node-0
          message     gpu-lost at gpu/0000:3b:00
          state       marked, new work is kept away
          scope       node node-0
          since       2023-11-14 22:12:20 UTC, 1 min 10 s ago
          changed     2023-11-14 22:13:30 UTC, just now
          component   GPU-1
          evidence    nvml: gone
          mark        quarantine, set 2023-11-14 22:13:30 UTC, just now
          waiting for what only the aggregator knows
          action      reset the GPU
        """)
    )
    assert "\n  see         nodeguard describe incident node-0-gpu-0000-3b-00-" in text
    assert text.count("gpu-lost - GPU") == 1
    assert text.endswith("\n  counts      against the limit of check gpu-lost; set just now")


def test_the_text_of_nodes_without_a_mark() -> None:
    fleet = fleet_of()
    on_hold, cordoned, healthy = (look(node_view(described(fleet, number))) for number in (1, 2, 3))
    assert on_hold.startswith("UNKNOWN  node-1: no mark, health not read.\n")
    assert "  state       withheld, the mark is not applied: the node is on hold: alice\n" in on_hold
    assert cordoned.startswith("UNKNOWN  node-2: no mark, health not read; cordoned by an operator.\n")
    assert healthy == page("""
        UNKNOWN  node-3: no mark, health not read.
          not read    health, and more: a role gives the right to read them
          condition   False, GpuLost: gone
          hardware    8 GPUs
    """)


def test_a_degraded_domain_comes_with_its_incident() -> None:
    fleet = leaves.faulty()
    node = described(fleet)
    assert [mark.target for mark in node.marks] == [leaves.FIRST]
    assert [incident.domain for incident in node.open_incidents] == [leaves.FIRST]
    text = look(node_view(node))
    assert text.startswith(f"UNKNOWN  node-0: no new gang work: {leaves.FIRST} degraded.")


def test_a_dry_run_is_no_mark() -> None:
    fleet = fleet_of(replace(AT_ONCE, mode=Mode.OBSERVE))
    [first, *_] = summaries(fleet)
    assert (first.marks, first.would_mark, first.work) == ((), 1, "unknown")
    assert "no mark, health not read" in look(node_view(described(fleet)))
