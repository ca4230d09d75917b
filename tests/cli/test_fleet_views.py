"""The pages of the fleet, as they look."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodeguard.cli.render.first_screen import first_status_screen
from nodeguard.cli.render.resources import INCIDENT_TABLE, resource_lines
from nodeguard.cli.render.terminal import view_lines
from nodeguard.fleet.state.rejected_reports import RejectedReport
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.service_state import Obstacle, ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.text.status import status_view
from nodeguard.model.finding import Action, Health
from nodeguard.model.policy import Mode
from nodeguard.wire.report import Inventory
from tests.aggregator.pages.scenes import faulty_fleet, large_fleet
from tests.cli.fleet_output import LEADER, explained, look, page
from tests.fleet.scene import AT_ONCE, Fleet, finding

PORT = "port/mlx5_0/1"


def test_a_storm_in_short(storm: Fleet) -> None:
    view = fleet_status(storm.planner, LEADER, storm.now)
    assert look(status_view(view)) == page("""
    FATAL  7500 nodes: 417 fatal, 1 suspect.
      in service  410 faulty nodes: a budget has reached its limit (409), the node
                  is on hold (1)
      agents      7500 of 7500 reporting
      nodes       7082 ok, 1 suspect, 417 fatal; 1 on hold, 1 under maintenance
      GPUs        59944 of 60000 in service
      marked      quarantine 7 nodes; suspect 1 node
      withheld    410 marks of 410 nodes not set: a budget has reached its limit
                  (409), the node is on hold (1); budget of check port-down: 5 new
                  marks in 10 min (407), budget of rack/r0: 2 nodes (2)
      topologies  rack 938 domains by label rack
      budgets     fleet 8 of 375, rack/r0 2 of 2, rack/r12 2 of 2, rack/r13 2 of 2,
                  rack/r1 1 of 2, rack/r14 1 of 2 (in use, of what is allowed at
                  once)
      incidents   410 withheld, 9 marked
      policy      enforce; /etc/nodeguard/policy.yaml
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 1 d 3 h,
                  planned just now; nodeguard 0.1.0

    FATAL    port-down, 412 incidents, 2 min 10 s old; such as node-102, port
             mlx5_0/1
             412 nodes: 407 withheld (budget of check port-down has reached its
             limit (5 new marks in 10 min)): node-102, node-103, node-106 and 404
             more; 5 quarantined: node-100, node-101, node-104 and 2 more
             nodeguard get incidents --check port-down

    FATAL    gpu-lost, 5 incidents, 2 min 10 s old; such as node-1, GPU 0000:3b:00
             5 nodes: 2 withheld (budget of rack/r0 has reached its limit
             (2 nodes)): node-1, node-3; 1 withheld (the node is on hold: alice
             debugs it): node-7; 2 quarantined: node-0, node-2
             nodeguard get incidents --check gpu-lost

    FATAL    node-2, GPU 0000:3c:00: gpu-ecc, marked, 14 min old
             waits for gpu-ecc to pass on GPU 0000:3c:00 with fresh data
             nodeguard describe incident node-2-gpu-0000-3c-00-356027bb

    SUSPECT  node-11, GPU 0000:3b:00: gpu-hot, marked, 2 min 10 s old
             91 °C, slowed by hardware
             to do: reset the GPU
             nodeguard describe incident node-11-gpu-0000-3b-00-6cfda3a9
    """)


def test_a_storm_fits_a_screen(storm: Fleet) -> None:
    view = fleet_status(storm.planner, LEADER, storm.now)
    assert look(first_status_screen(view)) == page("""
    FATAL  7500 nodes: 417 fatal, 1 suspect.
      in service  410 faulty nodes: a budget has reached its limit (409), the node
                  is on hold (1)
      GPUs        59944 of 60000 in service
      marked      quarantine 7 nodes; suspect 1 node
      withheld    410 marks of 410 nodes not set: a budget has reached its limit
                  (409), the node is on hold (1); budget of check port-down: 5 new
                  marks in 10 min (407), budget of rack/r0: 2 nodes (2)
      incidents   410 withheld, 9 marked
      policy      enforce; /etc/nodeguard/policy.yaml

    FATAL    port-down: 407 withheld, 5 quarantined, 2 min 10 s old
             such as node-102; nodeguard get incidents --check port-down

    FATAL    gpu-lost: 3 withheld, 2 quarantined, 2 min 10 s old
             such as node-1; nodeguard get incidents --check gpu-lost

    FATAL    node-2, GPU 0000:3c:00: gpu-ecc, marked, 14 min old
             waits for gpu-ecc to pass on GPU 0000:3c:00 with fresh data

    SUSPECT  node-11, GPU 0000:3b:00: gpu-hot, marked, 2 min 10 s old
             91 °C, slowed by hardware

    nodeguard status -v shows everything
    """)


def test_a_node_with_many_findings_is_one_entry() -> None:
    fleet = Fleet(1)
    hot = (finding("gpu-hot", f"gpu/0000:{bus}d:00", health=Health.SUSPECT) for bus in (1, 2, 5))
    warning = finding("memory-low", "node", health=Health.WARNING, action=Action.MONITOR)
    fleet.report(0, finding(action=Action.REBOOT_NODE), *hot, finding("port-down", PORT), warning)
    fleet.after(10.0)
    fleet.carry_out()
    text = look(first_status_screen(fleet_status(fleet.planner, LEADER, fleet.now)))
    assert text.partition("\n\n")[2] == page("""
    FATAL    node-0: 2 fatal, 3 suspect, 1 warning; marked, 1 min 10 s old
             to do: reboot the node
             gpu-lost (GPU 0000:3b:00); port-down (port mlx5_0/1); gpu-hot (3);
             memory-low (the node)
             nodeguard describe node node-0
    """)


@pytest.mark.parametrize("lost", [2, 8])
def test_the_entry_of_a_node_counts_faults_besides_those_of_an_earlier_group(lost: int) -> None:
    """The earlier entry names the first few of its nodes only."""
    fleet, last = Fleet(40), lost - 1
    for number in range(last):
        fleet.report(number, finding())
    fleet.report(last, finding(), finding("gpu-ecc", "gpu/0000:5e:00"), finding("port-down", PORT))
    fleet.after(10.0)
    fleet.carry_out()
    text = look(first_status_screen(fleet_status(fleet.planner, LEADER, fleet.now)))
    assert f"gpu-lost, {lost} incidents, " in text
    assert f"node-{last}: 2 more fatal; " in text
    assert "to do for these: " in text


@pytest.mark.parametrize("fleet", [faulty_fleet, lambda: large_fleet(68)])
def test_a_screen_names_each_kind_of_incident(fleet: Callable[[], Fleet]) -> None:
    scene = fleet()
    status = fleet_status(scene.planner, LEADER, scene.now)
    text = look(first_status_screen(status))
    assert len(text.splitlines()) <= 24
    assert all(f"{incident.cause}" in text for incident in status.worst)
    assert text.endswith("nodeguard status -v shows everything")


def test_no_view_of_a_storm_is_too_wide(storm: Fleet) -> None:
    for columns in (40, 60, 80, 100, 120):
        lines = view_lines(status_view(fleet_status(storm.planner, LEADER, storm.now)))
        incidents = list_incidents(storm.planner, LEADER, storm.now).incidents
        lines += resource_lines(INCIDENT_TABLE, incidents, columns, wide=False)
        assert max(map(len, look(lines, columns).splitlines())) <= columns


def test_a_healthy_fleet() -> None:
    fleet = Fleet(3)
    fleet.after(1.0)
    assert look(status_view(fleet_status(fleet.planner, LEADER, fleet.now))) == page("""
    OK  3 nodes: all checks passed.
      agents      3 of 3 reporting
      nodes       3 ok
      GPUs        24 of 24 in service
      marked      nothing
      budgets     fleet 0 of 3 (in use, of what is allowed at once)
      incidents   none
      policy      enforce; /etc/nodeguard/policy.yaml
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 1 d 3 h,
                  planned just now; nodeguard 0.1.0
    """)


def test_versions_are_shown_where_nodes_differ() -> None:
    fleet = Fleet(3)
    for number, driver in enumerate(("570.1", "570.1", "580.2")):
        fleet.report(number, inventory=Inventory(driver, "6.8"))
    fleet.after(1.0)
    text = look(status_view(fleet_status(fleet.planner, LEADER, fleet.now)))
    assert "  topologies  driver 2 versions\n" in text


def test_a_fleet_without_reports() -> None:
    text = look(status_view(fleet_status(Fleet(0).planner, LEADER, Fleet(0).now)))
    assert text.startswith("UNKNOWN  no agent has reported yet.\n")


def first_line(service: ServiceState, fleet: Fleet) -> str:
    return look(status_view(fleet_status(fleet.planner, service, fleet.now)), 400).partition("\n")[0]


def test_the_first_line_has_the_reason_why_nothing_is_written() -> None:
    fleet = Fleet(4)
    fleet.after(60.0)
    lost = replace(LEADER, leader="", is_leader=False)
    unanswered = Obstacle("api-unreachable", "the API server has not answered", fleet.mono - 43.0)
    assert first_line(replace(lost, obstacle=unanswered), fleet) == (
        "BLOCKED  nothing is written, for 43 s: the API server has not answered."
    )
    standby = Obstacle("standby", f"{LEADER.leader} is the leader", fleet.mono - 600.0)
    assert first_line(replace(LEADER, is_leader=False, obstacle=standby), fleet) == (
        f"OK  4 nodes: all checks passed. Standby for 10 min: {LEADER.leader} is the leader."
    )
    fleet.reports.clear()
    fleet.after(60.0)
    assert first_line(replace(LEADER, lacks_reports_since=fleet.mono - 15.0), fleet) == (
        "FROZEN  no new mark is set, for 15 s: 4 of 4 agents do not report, and no failure domain explains "
        "them: probably this aggregator is cut off, so check the network between it and the agents."
    )
    assert not first_line(replace(LEADER, is_leader=False, obstacle=standby), fleet).startswith("FROZEN")


def test_obstacles_come_first() -> None:
    fleet = Fleet(4, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.report(1, finding())
    for uid in ("uid-0", "uid-2"):
        fleet.reports.pop(uid)
    fleet.after(60.0)
    fleet.carry_out()
    fleet.planner.paused = "paused by alice: a bad driver"
    unread = Obstacle("not-read", "not read yet: Nodes", fleet.mono - 12.0)
    service = replace(LEADER, obstacle=unread, lacks_reports_since=fleet.mono - 15.0, started=fleet.mono - 12.0, plan_age=None, policy_file="",
        policy_error="policy.yaml, line 3: modes[0].check: must be text: write a check's name")  # fmt: skip
    assert look(status_view(fleet_status(fleet.planner, service, fleet.now))) == page("""
    BLOCKED  nothing is written, for 12 s: not read yet: Nodes.
    FATAL  4 nodes: 1 fatal, 2 unknown.
    OBSERVE MODE - no new mark is set. 1 node would be quarantined: 1 withheld (too
    many agents do not report: see nodeguard status).
      in service  1 faulty node: the check is not enforced
      paused      no new mark is set: paused by alice: a bad driver
      frozen      no new mark is set, for 15 s: 2 of 4 agents do not report, and no
                  failure domain explains them: probably this aggregator is cut off,
                  so check the network between it and the agents
      policy      the new file is rejected: policy.yaml, line 3: modes[0].check:
                  must be text: write a check's name
      agents      2 of 4 reporting, 2 stale
      nodes       1 ok, 1 fatal, 2 unknown
      GPUs        32 of 32 in service
      marked      nothing
      budgets     fleet 0 of 4 (in use, of what is allowed at once)
      incidents   1 dry run
      policy      observe; built-in
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 12 s, no plan
                  yet; nodeguard 0.1.0

    FATAL    node-1, GPU 0000:3b:00: gpu-lost, dry run, 2 min old
             would not quarantine node node-1: too many agents do not report: see
             nodeguard status
             to do: reset the GPU
             nodeguard describe incident node-1-gpu-0000-3b-00-f750a6f0
    """)


def test_a_standby_names_the_leader() -> None:
    fleet = Fleet(1)
    fleet.after(1.0)
    view = fleet_status(fleet.planner, replace(LEADER, is_leader=False, leader="replica-1"), fleet.now)
    assert "  leader      replica-1; this replica up 1 d 3 h, planned just now; nodeguard" in look(
        status_view(view)
    )
    view = fleet_status(fleet.planner, replace(LEADER, leader="standalone"), fleet.now)
    assert "  leader      standalone, up 1 d 3 h" in look(status_view(view))


def test_names_of_agents_cannot_control_the_terminal() -> None:
    fleet = Fleet(2)
    fleet.report(0, finding("\x1b[2J\x9b1m", message="\x1b]0;owned\x07", health=Health.WARNING))
    fleet.after(10.0)
    fleet.carry_out()
    view = list_incidents(fleet.planner, LEADER, fleet.now)
    seen = describe_incident(fleet.planner, LEADER, view.incidents[0].name, fleet.now)
    assert seen is not None
    for text in (
        look(status_view(fleet_status(fleet.planner, LEADER, fleet.now))),
        look(resource_lines(INCIDENT_TABLE, view.incidents, 80, wide=False)),
        look(incident_view(seen)),
        explained(fleet, 0),
    ):
        assert text.replace("\n", "").isprintable()
        assert "?[2J?1m" in text


def test_refused_messages_of_a_node_are_shown_first() -> None:
    fleet = Fleet(8)
    refusal = RejectedReport(
        "node-0",
        "other-boot",
        "another boot of this node is reporting: wait 30 s",
        fleet.mono - 3600.0,
        fleet.mono - 12.0,
        3,
    )
    service = replace(LEADER, refused=(refusal,))
    line = "  refused     3 messages of node-0 since 1 h ago, latest 12 s ago: another boot of this node is reporting: wait 30 s"
    assert look(status_view(fleet_status(fleet.planner, service, fleet.now)), 200).splitlines()[1] == line
    matches = describe_node(fleet.planner, service, "node-0", fleet.now)
    assert matches is not None
    assert line in look(node_view(matches), 200).splitlines()
