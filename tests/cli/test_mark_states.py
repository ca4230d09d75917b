"""The pages of the fleet for each state of a mark request: pending, dry run, withheld, advised."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.status import status_view
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Mode, ModeRule, Policy
from tests.cli.fleet_output import LEADER, explained, look, page
from tests.fleet.scene import Fleet, finding


def lost(policy: Policy, age: float = 60.0) -> Fleet:
    """Three nodes with a lost GPU each."""
    fleet = Fleet(3, policy)
    for number in range(3):
        fleet.report(number, finding(message="GPU 0000:3b:00 has fallen off the bus: Xid 79", age=age))
    fleet.planner.tick(fleet.now)
    fleet.carry_out()
    return fleet


def test_observe_mode_comes_first_with_the_budget() -> None:
    fleet = lost(Policy())
    assert look(status_view(fleet_status(fleet.planner, LEADER, fleet.now)), 120) == page("""
    FATAL  3 nodes: 3 fatal.
    OBSERVE MODE - no new mark is set. 3 nodes would be quarantined: 1 within budget, 2 over budget (fleet budget: 1 node).
      in service  3 faulty nodes: the check is not enforced
      agents      3 of 3 reporting
      nodes       0 ok, 3 fatal
      GPUs        24 of 24 in service
      marked      nothing
      budgets     fleet 0 of 1 (in use, of what is allowed at once)
      incidents   3 dry run
      policy      observe; /etc/nodeguard/policy.yaml
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 1 d 3 h, planned just now; nodeguard 0.1.0

    FATAL    gpu-lost, 3 incidents, 1 min old; such as node-0, GPU 0000:3b:00
             3 nodes: 2 in dry run (fleet budget would reach its limit (1 node)): node-1, node-2; 1 in dry run: node-0
             nodeguard get incidents --check gpu-lost
    """)
    assert explained(fleet, 0).startswith("FATAL  node-0: dry run: it would be quarantined: gpu-lost.\n")
    assert explained(fleet, 1).startswith(
        "FATAL  node-1: dry run: the mark of gpu-lost would be withheld: fleet budget\n"
        "       would reach its limit: 1 of 1 node quarantined.\n"
    )


def test_in_its_grace_period_a_mark_is_pending_with_the_time_left() -> None:
    fleet = lost(Policy(), age=2.0)
    text = look(status_view(fleet_status(fleet.planner, LEADER, fleet.now)))
    assert "\nOBSERVE MODE - no new mark is set. No mark is due yet.\n" in text
    assert "  pending     3 marks of 3 nodes in the grace period: the first has 3 s left\n" in text
    assert "withheld" not in text
    assert "  3 nodes: 3 pending (grace period): node-0, node-1, node-2\n" in text
    assert "  mark        pending (grace period, 3 s left)\n" in explained(fleet, 0)


def test_dry_run_and_enforced_marks_are_listed_apart() -> None:
    rules = (
        ModeRule(Mode.ENFORCE, checks=("gpu-ecc", "port-*")),
        ModeRule(Mode.OBSERVE, checks=("port-flap",)),
    )
    fleet = lost(Policy(modes=rules))
    text = " ".join(look(status_view(fleet_status(fleet.planner, LEADER, fleet.now))).split())
    assert "OBSERVE MODE" not in text
    assert (
        " dry run 3 nodes would be quarantined: 1 within budget, 2 over budget (fleet budget: 1 node); the checks "
        "are not enforced "
    ) in text
    assert " policy observe by default; enforced: gpu-ecc, port-*; observed: port-flap; " in text


def test_without_a_cluster_marks_are_advised() -> None:
    fleet = Fleet(2)
    fleet.restart(IncidentState.ADVISED)
    fleet.report(0, finding())
    fleet.carry_out()
    view = fleet_status(fleet.planner, replace(LEADER, leader="standalone"), fleet.now)
    text = look(status_view(view))
    assert "  advised     quarantine 1 node\n" in text
    assert "FATAL    node-0, GPU 0000:3b:00: gpu-lost, advised, 1 min old\n" in text
    assert "         advice: keep new work away\n" in text.replace(
        "gpu-lost at gpu/0000:3b:00", "advice: keep new work away"
    )
    assert "marked" not in text
    text = explained(fleet, 0)
    assert text.startswith("FATAL  node-0: advice: keep all new work off it: gpu-lost.\n")
    assert "  mark        quarantine, advised " in text
    [line] = list_incidents(fleet.planner, LEADER, fleet.now).incidents
    seen = describe_incident(fleet.planner, LEADER, line.name, fleet.now)
    assert seen is not None
    assert "  state       advised, advice: keep new work away\n" in look(incident_view(seen))
