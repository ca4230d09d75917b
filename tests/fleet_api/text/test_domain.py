"""Tests for nodeguard.fleet_api.text.domain, and for domains and suppressed checks in other views."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet_api.domain import describe_domain, list_domains
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.domain import domain_list_view, domain_view
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.text.status import status_view
from nodeguard.model.finding import Action
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import MAINTENANCE_ANNOTATION
from nodeguard.wire.report import Inventory
from tests.cli.fleet_output import LEADER, look, page
from tests.fleet.leaves import ENFORCED, FIRST, fails, wait, well
from tests.fleet.leaves import fleet as leaves
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import suppressed_fleet
from tests.policies import diagnosis_policy


def fabric() -> Fleet:
    """160 nodes, eight to a leaf: a leaf with six that lost a link, of a node that is moved and one that is held."""
    fleet = leaves(160)
    fleet.change(7, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    fleet.add(200, labels={})
    fails(fleet, range(6))
    wait(fleet, 20.0)
    well(fleet, [1])
    fails(fleet, [41])
    wait(fleet, 5.0)
    return fleet


FABRIC = fabric()


def test_a_degraded_domain() -> None:
    assert look(domain_view(describe_domain(FABRIC.planner, LEADER, FIRST, FABRIC.now)), 100) == page("""
    SUSPECT  fabric/p0/r0: 6 of 7 nodes lost a link at once; the other 4 domains of fabric/p0 did not.
      mark        marked on 8 nodes, new gang work is kept off the domain; single-node work may run
      degraded    2023-11-14 22:13:41 UTC, 5 s ago

    WHAT TO DO  The network team acts
      look first  The switch of the domain: its power, its ports and its log. Then its uplinks.
      nodes       Leave them as they are: they need no repair. Single-node work may run; move or restart
                  gang jobs that lost their links.
      ends        The ports of the nodes are active again. nodeguard ends it when fewer than 2 of its
                  nodes show it for 30 min.

      counted     6 of 7 nodes by 2023-11-14 22:13:21 UTC; 5 show it now
      first seen  2023-11-14 22:13:21 UTC, 25 s ago
      fault       6 of 7 lost a link in the last 2 min (link-down); threshold 3 (minimum share)
      fault       6 of 7 had trouble with a link in the last 10 min (link); threshold 3 (minimum share)
      siblings    4 domains with 32 nodes: 0 show the same fault
      part of     fabric/p0: 6 of 40 nodes show a fault
      members     8 nodes, 7 may vote
      no vote     1 node (node-7): under maintenance
      source      labels pod, rack
      missing     1 node lacks pod (node-200)
      missing     1 node lacks rack (node-200)
      see         nodeguard describe incident fabric-p0-r0-7e385bdb

      5 nodes     port-down on port mlx5_0/1, 25 s ago: the port is down
                  node-0, node-2, node-3, node-4, node-5
      node-1      25 s ago; the fault is over
    """)


def test_a_domain_that_is_not_degraded() -> None:
    assert look(domain_view(describe_domain(FABRIC.planner, LEADER, "fabric/p0", FABRIC.now)), 100) == page("""
    WARNING  fabric/p0: not degraded; 6 of 39 nodes lost a link within 2 min.
      fault       6 of 39 lost a link in the last 2 min (link-down); threshold 4, reported as
                  fabric/p0/r0
      fault       6 of 39 had trouble with a link in the last 10 min (link); threshold 4, reported as
                  fabric/p0/r0
      siblings    3 domains with 120 nodes: 1 show the same fault
      members     40 nodes, 39 may vote
      no vote     1 node (node-7): under maintenance
      source      labels pod, rack
      missing     1 node lacks pod (node-200)
      missing     1 node lacks rack (node-200)

      5 nodes     port-down on port mlx5_0/1, 25 s ago: the port is down
                  node-0, node-2, node-3, node-4, node-5
      node-1      25 s ago; the fault is over

      fabric/p0/r0: 6 of 8 nodes, link-down, link, marked
      fabric/p0/r1: 0 of 8 nodes show a fault
      fabric/p0/r2: 0 of 8 nodes show a fault
      fabric/p0/r3: 0 of 8 nodes show a fault
      fabric/p0/r4: 0 of 8 nodes show a fault
    """)
    assert look(
        domain_view(describe_domain(FABRIC.planner, LEADER, "fabric/p2/r10", FABRIC.now)), 100
    ) == page("""
    OK  fabric/p2/r10: no shared fault.
      thresholds  link-down: threshold 3 (minimum share); link: threshold 3 (minimum share); silent:
                  threshold 3 (minimum share)
      siblings    4 domains
      part of     fabric/p2: 0 of 40 nodes show a fault
      members     8 nodes, 8 may vote
      source      labels pod, rack
      missing     1 node lacks pod (node-200)
      missing     1 node lacks rack (node-200)
    """)


def test_the_topologies_of_nodes() -> None:
    assert look(domain_list_view(list_domains(FABRIC.planner, FABRIC.now)), 100) == page("""
    SUSPECT  1 domain degraded, 3 more show a fault.
      topology    fabric 24 domains by labels pod, rack, 1 node lacks pod (node-200), 1 node lacks rack
                  (node-200)
    """)


@pytest.mark.parametrize(
    ("inventory", "heading"),
    [(None, "there are no failure domains"), (Inventory(driver="570.1"), "no domain is degraded")],
    ids=["no nodes", "versions only"],
)
def test_a_fleet_without_shared_hardware_is_not_ok(inventory: Inventory | None, heading: str) -> None:
    fleet = Fleet(0)
    if inventory is not None:
        fleet.add(0, labels={})
        fleet.report(0, inventory=inventory)
        fleet.after(5.0)
    shown = look(domain_list_view(list_domains(fleet.planner, fleet.now)), 200)
    assert shown.startswith(f"UNKNOWN  {heading}; no shared hardware is named.\n")
    assert (
        "missing     racks, switches and power: no node has their labels, and the policy no nodeLocations\n"
        in shown
    )
    assert "nodeLocations: racks.csv" in shown
    assert ("driver 1 version" in shown) == (inventory is not None)


def test_the_status_of_a_fleet_with_a_degraded_domain() -> None:
    assert look(status_view(fleet_status(FABRIC.planner, LEADER, FABRIC.now)), 100) == page("""
    FATAL  161 nodes: 6 fatal.
      in service  1 faulty node: the grace period has not ended
      agents      161 of 161 reporting
      nodes       155 ok, 6 fatal; 1 under maintenance
      GPUs        1288 of 1288 in service
      marked      domain-degraded 8 nodes
      pending     1 mark of 1 node in the grace period: 55 s left
      topologies  fabric 24 domains by labels pod, rack, 1 node lacks pod (node-200), 1 node lacks rack
                  (node-200)
      domains     1 marked: fabric/p0/r0
      budgets     fleet 0 of 161 (in use, of what is allowed at once)
      incidents   1 pending, 1 marked
      policy      enforce; /etc/nodeguard/policy.yaml
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 1 d 3 h, planned just now;
                  nodeguard 0.1.0

    FATAL    node-41, port mlx5_0/1: port-down, pending (grace period, 55 s left), 5 s old
             the port is down
             to do: replace the component
             nodeguard describe incident node-41-port-mlx5-0-1-3cf70655

    SUSPECT  fabric/p0/r0: link-down, marked, 25 s old
             6 of 7 nodes lost a link at once; the other 4 domains of fabric/p0 did not
             The network team acts. Look first: The switch of the domain: its power, its ports and its
             log. Then its uplinks.
             nodeguard describe incident fabric-p0-r0-7e385bdb
    """)


def test_the_incident_of_a_domain() -> None:
    name = describe_domain(FABRIC.planner, LEADER, FIRST, FABRIC.now).incident
    view = describe_incident(FABRIC.planner, LEADER, name, FABRIC.now)
    assert view is not None
    assert look(incident_view(view), 100) == page("""
    SUSPECT  link-down - fabric/p0/r0
      message     fabric/p0/r0: 6 of 7 nodes lost a link at once; the other 4 domains of fabric/p0 did
                  not
      state       marked, new gang work is kept away: ends when fewer than 2 of its nodes show it for
                  30 min
      scope       8 nodes of fabric/p0/r0
      since       2023-11-14 22:13:21 UTC, 25 s ago
      changed     2023-11-14 22:13:41 UTC, 5 s ago
      see         nodeguard describe domain fabric/p0/r0

    WHAT TO DO  The network team acts
      look first  The switch of the domain: its power, its ports and its log. Then its uplinks.
      nodes       Leave them as they are: they need no repair. Single-node work may run; move or restart
                  gang jobs that lost their links.
      ends        The ports of the nodes are active again.

    FATAL  port-down - port mlx5_0/1 of 6 nodes
      message     the port is down
      nodes       node-0, node-1, node-2, node-3, node-4, node-5
    """)
    few = look(incident_view(replace(view, symptoms=view.symptoms[:1])), 100)
    assert few.endswith("FATAL  port-down - node-0, port mlx5_0/1\n  message     the port is down")


def test_a_node_of_a_degraded_domain() -> None:
    view = describe_node(FABRIC.planner, LEADER, "node-0", FABRIC.now)
    assert view is not None
    assert look(node_view(view), 100) == page("""
    FATAL  node-0: no new gang work: fabric/p0/r0 degraded.
      last report just now
      hardware    8 GPUs; no pool
      domains     fabric/p0, fabric/p0/r0

    DOMAIN-DEGRADED  link-down - fabric/p0/r0
      since       2023-11-14 22:13:41 UTC, 5 s ago
      waiting for fabric/p0/r0 to recover: ends when fewer than 2 of its nodes show it for 30 min
      see         nodeguard describe domain fabric/p0/r0

    FATAL  port-down - port mlx5_0/1
      message     the port is down
      component   mlx5_0
      since       2023-11-14 22:13:21 UTC, 25 s ago
      evidence    infiniband: port.up False
      cause       fabric/p0/r0 is degraded: nothing to repair at this node
      action      The network team acts. Look first: The switch of the domain: its power, its ports and
                  its log. Then its uplinks.
      see         nodeguard explain port-down
      incident    fabric-p0-r0-7e385bdb

      budgets     fleet 0 of 161, default pool 0 of 161, fabric/p0 0 of 40, fabric/p0/r0 0 of 8 (in use,
                  of what is allowed at once)
    """)


def test_a_suppressed_check() -> None:
    fleet = leaves(120, replace(ENFORCED, diagnosis=diagnosis_policy()))
    wait(fleet, 700.0)
    for number in (0, 9, 41, 49, 89, 97):
        fleet.report(number, finding(age=0.0))
    wait(fleet, 20.0)
    assert look(status_view(fleet_status(fleet.planner, LEADER, fleet.now)), 100) == page("""
    FATAL  120 nodes: 6 fatal; 6 marks withheld.
      check       gpu-lost is suppressed: it fires on 6 nodes that no failure domain explains; up to 4
                  within 10 min may be chance; no other source confirms it: a false alarm
      agents      120 of 120 reporting
      nodes       114 ok, 6 fatal
      GPUs        960 of 960 in service
      marked      nothing
      withheld    6 marks of 6 nodes not set: the check is suppressed
      topologies  fabric 18 domains by labels pod, rack
      budgets     fleet 0 of 120 (in use, of what is allowed at once)
      incidents   1 open, 6 withheld
      policy      enforce; /etc/nodeguard/policy.yaml
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 1 d 3 h, planned just now;
                  nodeguard 0.1.0

    WARNING  check gpu-lost: suppressed, 20 s old
             it fires on 6 nodes that no failure domain explains; up to 4 within 10 min may be chance;
             no other source confirms it: a false alarm
             The team that runs the nodes acts. Look first: What these nodes got before: driver, agent
             or catalogue. Roll it back if the check is wrong.
             nodeguard describe incident check-gpu-lost-b567aef3
    """)
    [name] = fleet.planner.tracker.recorded.by_uid[""]
    view = describe_incident(fleet.planner, LEADER, name, fleet.now)
    assert view is not None
    assert look(incident_view(replace(view, symptoms=view.symptoms[:1])), 100) == page("""
    WARNING  check gpu-lost is suppressed
      message     check gpu-lost is suppressed: it fires on 6 nodes that no failure domain explains; up
                  to 4 within 10 min may be chance; no other source confirms it: a false alarm
      state       open, report only; no scheduling change: it marks nothing new; its marks stay, as too
                  few nodes are affected to release them
      since       2023-11-14 22:25:01 UTC, 20 s ago
      changed     2023-11-14 22:25:21 UTC, just now
      see         nodeguard explain gpu-lost

    WHAT TO DO  The team that runs the nodes acts
      look first  What these nodes got before: driver, agent or catalogue. Roll it back if the check is
                  wrong.
      nodes       Leave them in service. If another source confirms the fault, cordon as many as the
                  work allows.
      ends        The check fires on only a few nodes. nodeguard ends it 30 min later by itself.
                  nodeguard incidents clear check-gpu-lost-b567aef3 ends it at once.

    FATAL  gpu-lost - node-0, GPU 0000:3b:00
      message     gpu-lost at gpu/0000:3b:00
    """)


def test_a_node_with_a_suppressed_check_shows_its_incident_and_no_repair() -> None:
    fleet = leaves(120, replace(ENFORCED, diagnosis=diagnosis_policy()))
    wait(fleet, 700.0)
    for number in (0, 9, 41, 49, 89, 97):
        fleet.report(number, finding(age=0.0))
    wait(fleet, 20.0)
    view = describe_node(fleet.planner, LEADER, "node-9", fleet.now)
    assert view is not None
    assert [found.how for found in view.findings] == [()]
    text = look(node_view(view), 100)
    assert "mark        withheld: check gpu-lost is suppressed" in text
    assert "cause       check-gpu-lost-b567aef3: see what to do there" in text
    assert "action" not in text
    assert "how" not in text
    [incident] = fleet.planner.tracker.recorded.by_uid["uid-9"]
    full = describe_incident(fleet.planner, LEADER, incident, fleet.now)
    assert full is not None
    assert (full.how, full.action) == ((), Action.NONE)
    assert "action" not in look(incident_view(full), 100)
    listed = list_incidents(fleet.planner, LEADER, fleet.now, frozenset({IncidentState.WITHHELD}))
    assert {item.action for item in listed.incidents} == {Action.NONE}


def test_a_node_with_a_mark_of_a_suppressed_check_shows_what_to_do() -> None:
    fleet = suppressed_fleet([0, 9, 17, 26, 34], finding(age=0.0))
    fleet.report(0, finding(age=0.0, fact=True))
    fleet.carry_out()
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    [name] = fleet.planner.tracker.recorded.by_uid["uid-0"]
    incident = describe_incident(fleet.planner, LEADER, name, fleet.now)
    assert view is not None
    assert incident is not None
    assert incident.how
    assert [found.how for found in view.findings] == [incident.how]
    assert "kubectl exec" in look(node_view(view), 100)


def test_long_names_of_nodes_are_aligned() -> None:
    view = describe_domain(FABRIC.planner, LEADER, FIRST, FABRIC.now)
    names = "gpu-h100-0001", "gpu-h100-with-a-long-name"
    votes = tuple(replace(vote, node=name) for name, vote in zip(names, view.votes, strict=False))
    lines = look(domain_view(replace(view, votes=votes)), 120).splitlines()
    assert [line.index(" 25 s ago") > 0 for line in lines if "gpu-h100" in line] == [True, True]
    assert f"  {names[0]:<25} port-down" in "\n".join(lines)
    assert f"  {names[1]} 25 s ago" in "\n".join(lines)
