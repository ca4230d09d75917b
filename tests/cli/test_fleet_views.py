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
from nodeguard.model.diagnosis import SuppressionPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Mode, Policy, Pool, TopologyLabels
from nodeguard.wire.report import Inventory
from tests.aggregator.pages.scenes import faulty_fleet, large_fleet
from tests.cli.fleet_output import LEADER, explained, look, page
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.policies import diagnosis_policy

PORT = "port/mlx5_0/1"


@pytest.fixture(scope="module")
def storm() -> Fleet:
    """A fleet of 7,500 nodes: a switch takes the ports of 412 down, some GPUs are lost."""
    policy = Policy(
        mode=Mode.ENFORCE,
        pools=(Pool("training", {"pool": "a"}),),
        topologies=(TopologyLabels("rack", ("rack",)),),
        diagnosis=diagnosis_policy(suppression=SuppressionPolicy(min_nodes=10_000)),
    )
    fleet = Fleet(7500, policy)
    fleet.report(2, finding("gpu-ecc", "gpu/0000:3c:00", message="12 uncorrectable errors in SRAM"))
    fleet.after(10.0)
    fleet.carry_out()
    fleet.after(700.0)
    for number in range(100, 512):
        fleet.report(
            number, finding("port-down", PORT, family="port", message="port mlx5_0/1 is down: polling")
        )
    for number in (0, 1, 2, 3, 7):
        fleet.report(number, finding(message="GPU 0000:3b:00 has fallen off the bus: Xid 79"))
    fleet.report(11, finding("gpu-hot", health=Health.SUSPECT, message="91 °C, slowed by hardware"))
    fleet.change(7, annotations={HOLD_ANNOTATION: "alice debugs it"})
    fleet.change(8, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    fleet.after(70.0)
    fleet.carry_out()
    return fleet


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
      withheld    410 marks of 410 nodes: a budget has reached its limit (409), the
                  node is on hold (1); budget of check port-down: 5 new marks in
                  10 min (407), budget of rack/r0: 2 nodes (2)
      topologies  rack 938 domains by label rack
      budgets     fleet 8 of 375, rack/r0 2 of 2, rack/r12 2 of 2, rack/r13 2 of 2,
                  rack/r1 1 of 2, rack/r14 1 of 2
      incidents   410 withheld, 9 marked
      policy      enforce; /etc/nodeguard/policy.yaml
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 1 d 3 h,
                  planned just now; nodeguard 0.1.0

    FATAL    port-down, 412 incidents; the first: node-102, port mlx5_0/1, 2 min
             10 s old
             412 nodes: 407 withheld (budget of check port-down has reached its
             limit (5 new marks in 10 min)): node-102, node-103, node-106 and 404
             more; 5 quarantined: node-100, node-101, node-104 and 2 more
             nodeguard get incidents --check port-down

    FATAL    gpu-lost, 5 incidents; the first: node-1, GPU 0000:3b:00, 2 min 10 s
             old
             5 nodes: 2 withheld (budget of rack/r0 has reached its limit
             (2 nodes)): node-1, node-3; 1 withheld (hold on the node: alice debugs
             it): node-7; 2 quarantined: node-0, node-2
             nodeguard get incidents --check gpu-lost

    FATAL    node-2, GPU 0000:3c:00: gpu-ecc, marked, 14 min old
             waits for gpu-ecc to pass on GPU 0000:3c:00 with fresh data
             nodeguard describe incident node-2-gpu-0000-3c-00-356027bb

    SUSPECT  node-11, GPU 0000:3b:00: gpu-hot, marked, 2 min 10 s old
             91 °C, slowed by hardware
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
      withheld    410 marks of 410 nodes: a budget has reached its limit (409), the
                  node is on hold (1); budget of check port-down: 5 new marks in
                  10 min (407), budget of rack/r0: 2 nodes (2)
      incidents   410 withheld, 9 marked
      policy      enforce; /etc/nodeguard/policy.yaml

    FATAL    port-down: 407 withheld, 5 quarantined, 2 min 10 s old
             the first: node-102; nodeguard get incidents --check port-down

    FATAL    gpu-lost: 3 withheld, 2 quarantined, 2 min 10 s old
             the first: node-1; nodeguard get incidents --check gpu-lost

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
    assert f"gpu-lost, {lost} incidents; the first: node-" in text
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
      budgets     fleet 0 of 3
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
      budgets     fleet 0 of 4
      incidents   1 dry run
      policy      observe; built-in
      leader      nodeguard-aggregator-6f7c9d-x2vbn (this replica), up 12 s, no plan
                  yet; nodeguard 0.1.0

    FATAL    node-1, GPU 0000:3b:00: gpu-lost, dry run, 2 min old
             would not quarantine node node-1: too many agents do not report: see
             nodeguard status
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


def test_a_marked_node(storm: Fleet) -> None:
    assert explained(storm, 2) == page("""
    FATAL  node-2: quarantined: gpu-ecc, gpu-lost.
      last report just now
      hardware    8 GPUs; no pool, rack/r0

    FATAL  gpu-lost - GPU 0000:3b:00
      message     GPU 0000:3b:00 has fallen off the bus: Xid 79
      component   GPU-1
      since       2023-11-14 22:24:10 UTC, 2 min 10 s ago
      evidence    nvml: gone
      mark        quarantine, set 2023-11-14 22:26:20 UTC, just now
      waiting for gpu-lost to pass (still failing)
      action      reset the GPU
      how         kubectl drain node-2 --ignore-daemonsets --delete-emptydir-data
                  POD=$(kubectl get pods -n nodeguard -l \\
                  app.kubernetes.io/name=nodeguard-agent --field-selector \\
                  spec.nodeName=node-2 -o name)
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus detach \\
                  --duration 30m --gpu 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- chroot /host nvidia-smi \\
                  --gpu-reset -i 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus attach
                  kubectl uncordon node-2
      see         nodeguard explain gpu-lost
      incident    node-2-gpu-0000-3b-00-eafa7dfb

    QUARANTINE  gpu-ecc - GPU 0000:3c:00
      component   GPU-1
      since       2023-11-14 22:13:30 UTC, 12 min 50 s ago
      waiting for gpu-ecc to pass on GPU 0000:3c:00 with fresh data
      incident    node-2-gpu-0000-3c-00-356027bb

      counts      against the limit of check gpu-ecc; set 12 min 50 s ago
      budgets     fleet 8 of 375, default pool 5 of 375, rack/r0 2 of 2, check
                  gpu-ecc 1 of 15
    """)


def test_a_node_with_a_withheld_mark(storm: Fleet) -> None:
    assert explained(storm, 7) == page("""
    FATAL  node-7: not marked (gpu-lost): hold on the node: alice debugs it.
      last report just now
      hardware    8 GPUs; pool training, rack/r0
      hold        alice debugs it; nodeguard changes nothing here

    FATAL  gpu-lost - GPU 0000:3b:00
      message     GPU 0000:3b:00 has fallen off the bus: Xid 79
      component   GPU-1
      since       2023-11-14 22:24:10 UTC, 2 min 10 s ago
      evidence    nvml: gone
      mark        withheld: hold on the node: alice debugs it
      action      reset the GPU
      how         kubectl drain node-7 --ignore-daemonsets --delete-emptydir-data
                  POD=$(kubectl get pods -n nodeguard -l \\
                  app.kubernetes.io/name=nodeguard-agent --field-selector \\
                  spec.nodeName=node-7 -o name)
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus detach \\
                  --duration 30m --gpu 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- chroot /host nvidia-smi \\
                  --gpu-reset -i 0000:3b:00.0
                  kubectl exec -n nodeguard "$POD" -- nodeguard gpus attach
                  kubectl uncordon node-7
      see         nodeguard explain gpu-lost
      incident    node-7-gpu-0000-3b-00-12be22f3

      budgets     fleet 8 of 375, pool training 3 of 375, rack/r0 2 of 2
    """)


def test_a_healthy_node(storm: Fleet) -> None:
    assert explained(storm, 5000) == page("""
    OK  node-5000: all checks passed.
      last report just now
      hardware    8 GPUs; no pool, rack/r625

      budgets     fleet 8 of 375, default pool 5 of 375, rack/r625 0 of 2
    """)


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


def test_incidents_in_a_list(storm: Fleet) -> None:
    view = list_incidents(storm.planner, LEADER, storm.now)
    of_port = next(incident for incident in view.incidents if incident.cause == "port-down")
    few = replace(view, incidents=(view.incidents[0], of_port, *view.incidents[-2:]), omitted=3)
    few = replace(few, incidents=(replace(few.incidents[0], acknowledged="alice"), *few.incidents[1:]))
    assert look(resource_lines(INCIDENT_TABLE, few.incidents, 120, wide=False, omitted=3), 120) == page("""
    SEVERITY  NODE      DEVICE          CHECK      STATE     AGE         ACK    MESSAGE
    fatal     node-1    GPU 0000:3b:00  gpu-lost   withheld  2 min 10 s  alice  has fallen off the bus: Xid 79
    fatal     node-102  port mlx5_0/1   port-down  withheld  2 min 10 s  -      is down: polling
    fatal     node-2    GPU 0000:3c:00  gpu-ecc    marked    14 min      -      12 uncorrectable errors in SRAM
    suspect   node-11   GPU 0000:3b:00  gpu-hot    marked    2 min 10 s  -      91 °C, slowed by hardware
    and 3 more: use filters
    """)
    assert look(resource_lines(INCIDENT_TABLE, few.incidents, 160, wide=True), 160) == page("""
    SEVERITY  NODE      DEVICE          CHECK      STATE     AGE         ACK    ACTION     NAME                             MESSAGE
    fatal     node-1    GPU 0000:3b:00  gpu-lost   withheld  2 min 10 s  alice  reset-gpu  node-1-gpu-0000-3b-00-f750a6f0   has fallen off the bus: Xid 79
    fatal     node-102  port mlx5_0/1   port-down  withheld  2 min 10 s  -      reset-gpu  node-102-port-mlx5-0-1-690d486f  is down: polling
    fatal     node-2    GPU 0000:3c:00  gpu-ecc    marked    14 min      -      none       node-2-gpu-0000-3c-00-356027bb   12 uncorrectable errors in SRAM
    suspect   node-11   GPU 0000:3b:00  gpu-hot    marked    2 min 10 s  -      reset-gpu  node-11-gpu-0000-3b-00-6cfda3a9  91 °C, slowed by hardware
    """)


@pytest.mark.parametrize(
    ("age", "text"),
    [(0.2, "0 s"), (130.0, "2 min 10 s"), (1435.0, "23 min"), (4230.0, "1 h 10 min"), (90_000.0, "1 d 1 h")],
)
def test_a_long_age_in_a_table_has_no_small_units(storm: Fleet, age: float, text: str) -> None:
    incident = replace(list_incidents(storm.planner, LEADER, storm.now).incidents[0], age=age)
    row = look(resource_lines(INCIDENT_TABLE, [incident], 120, wide=False), 120).splitlines()[1]
    assert f"withheld  {text}  " in row


def test_an_incident_in_full(storm: Fleet) -> None:
    name = next(
        name for name, item in storm.planner.tracker.incidents["uid-2"].items() if item.cause == "gpu-ecc"
    )
    view = describe_incident(
        storm.planner, replace(LEADER, decisions={name: OperatorDecision(name, "alice", "")}), name, storm.now
    )
    assert view is not None
    assert look(incident_view(view)) == page("""
    FATAL  gpu-ecc - GPU 0000:3c:00 of node-2
      state       marked, new work is kept away: waits for gpu-ecc to pass on GPU
                  0000:3c:00 with fresh data
      scope       node node-2
      since       2023-11-14 22:12:20 UTC, 14 min ago
      changed     2023-11-14 22:26:20 UTC, just now
      message     12 uncorrectable errors in SRAM
      component   GPU-1
      ack         by alice
      see         nodeguard describe node node-2, nodeguard explain gpu-ecc

    QUARANTINE  gpu-ecc - GPU 0000:3c:00
      component   GPU-1
      since       2023-11-14 22:13:30 UTC, 12 min 50 s ago
      waiting for gpu-ecc to pass on GPU 0000:3c:00 with fresh data
    """)


def test_a_suspect_mark_keeps_only_gangs_away(storm: Fleet) -> None:
    [name] = storm.planner.tracker.incidents["uid-11"]
    view = describe_incident(storm.planner, LEADER, name, storm.now)
    assert view is not None
    assert "  state       marked, new gang work is kept away\n  scope       node node-11\n" in look(
        incident_view(view)
    )


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


def test_a_list_that_filters_leave_empty_names_what_they_left_out() -> None:
    lines = resource_lines(INCIDENT_TABLE, [], 80, wide=False, omitted=3, selected_from=5)
    assert [(line.text, line.style) for line in lines] == [
        ("no incidents: none of 5 matches", ""),
        ("and 3 more: use filters", ""),
    ]
    assert [(line.text, line.style) for line in resource_lines(INCIDENT_TABLE, [], 80, wide=False)] == [
        ("no incidents", "ok")
    ]
