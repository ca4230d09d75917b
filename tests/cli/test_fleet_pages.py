"""The pages of the fleet, as they look."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.cli.render.incident import incident_page, incidents_page
from nodeguard.cli.render.node import node_page
from nodeguard.cli.render.status import status_page
from nodeguard.fleet.state.rejected_reports import RejectedReport
from nodeguard.fleet_api.incident import incident, listed
from nodeguard.fleet_api.node import node
from nodeguard.fleet_api.status import status
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Mode, Policy, Pool, TopologyLabels
from nodeguard.wire.report import Inventory, UnreadableTargets
from tests.cli.fleet_look import LEADER, explained, look, page
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign

PORT = "port/mlx5_0/1"


def storm() -> Fleet:
    """A fleet of 7,500 nodes: a switch takes the ports of 412 down, some GPUs are lost."""
    policy = Policy(
        mode=Mode.ENFORCE,
        pools=(Pool("training", {"pool": "a"}),),
        topologies=(TopologyLabels("rack", ("rack",)),),
        diagnosis=DiagnosisPolicy(held=10_000),
    )
    fleet = Fleet(7500, policy)
    fleet.say(2, finding("gpu-ecc", "gpu/0000:3c:00", message="12 uncorrectable errors in SRAM"))
    fleet.after(10.0)
    fleet.carry_out()
    fleet.after(700.0)
    for number in range(100, 512):
        fleet.say(number, finding("port-down", PORT, family="port", message="port mlx5_0/1 is down: polling"))
    for number in (0, 1, 2, 3, 7):
        fleet.say(number, finding(message="GPU 0000:3b:00 has fallen off the bus: Xid 79"))
    fleet.say(11, finding("gpu-hot", health=Health.SUSPECT, message="91 °C, slowed by hardware"))
    fleet.change(7, annotations={HOLD_ANNOTATION: "alice debugs it"})
    fleet.change(8, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    fleet.after(70.0)
    fleet.carry_out()
    return fleet


STORM = storm()


def test_a_storm_in_short() -> None:
    told = status(STORM.planner, LEADER, STORM.now)
    assert look(status_page(told)) == page("""
    FATAL  7500 nodes: 417 fatal, 1 suspect; 410 marks withheld.
      agents    7500 expected, 7500 reporting
      nodes     7082 ok, 1 suspect, 417 fatal; 1 on hold, 1 under maintenance
      marked    quarantine 7 nodes; suspect 1 node
      withheld  410 marks of 410 nodes: budget of check port-down used up: 5 of 5
                new marks in 10 min (407); budget of rack/r0 used up: 2 of 2 nodes
                marked (2); hold on the node: alice debugs it (1)
      views     rack 938 domains by label rack
      budgets   fleet 8 of 375, rack/r0 2 of 2, rack/r12 2 of 2, rack/r13 2 of 2,
                rack/r1 1 of 2, rack/r14 1 of 2
      incidents 410 withheld, 9 marked
      policy    enforce; /etc/nodeguard/policy.yaml
      leader    nodeguard-aggregator-6f7c9d-x2vbn (this one), up 1 d 3 h, planned
                just now; nodeguard 0.1.0

    FATAL    node-102, port mlx5_0/1: port-down, withheld, 2 min 10 s old
             budget of check port-down used up: 5 of 5 new marks in 10 min; 411 more
             alike
             nodeguard explain incident node-102-port-mlx5-0-1-690d486f

    FATAL    node-1, GPU 0000:3b:00: gpu-lost, withheld, 2 min 10 s old
             budget of rack/r0 used up: 2 of 2 nodes marked; 4 more alike
             nodeguard explain incident node-1-gpu-0000-3b-00-f750a6f0

    FATAL    node-2, GPU 0000:3c:00: gpu-ecc, marked, 14 min old
             kept until proven to be over by gpu-ecc
             nodeguard explain incident node-2-gpu-0000-3c-00-356027bb

    SUSPECT  node-11, GPU 0000:3b:00: gpu-hot, marked, 2 min 10 s old
             91 °C, slowed by hardware
             nodeguard explain incident node-11-gpu-0000-3b-00-6cfda3a9
    """)


def test_no_page_of_a_storm_is_too_wide() -> None:
    for columns in (80, 100, 120):
        lines = status_page(status(STORM.planner, LEADER, STORM.now))
        lines += incidents_page(listed(STORM.planner, LEADER, STORM.now), columns)
        assert max(map(len, look(lines, columns).splitlines())) <= columns


def test_a_fleet_that_is_well() -> None:
    fleet = Fleet(3)
    fleet.after(1.0)
    assert look(status_page(status(fleet.planner, LEADER, fleet.now))) == page("""
    OK  3 nodes: nothing wrong found.
      agents    3 expected, 3 reporting
      nodes     3 ok
      marked    nothing
      budgets   fleet 0 of 3
      incidents none
      policy    enforce; /etc/nodeguard/policy.yaml
      leader    nodeguard-aggregator-6f7c9d-x2vbn (this one), up 1 d 3 h, planned
                just now; nodeguard 0.1.0
    """)


def test_a_fleet_that_is_not_known_yet() -> None:
    text = look(status_page(status(Fleet(0).planner, LEADER, Fleet(0).now)))
    assert text.startswith("UNKNOWN  no node is known yet.\n")


def test_what_keeps_it_from_its_work_comes_first() -> None:
    fleet = Fleet(4, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.say(1, finding())
    fleet.reports.pop("uid-0")
    fleet.after(60.0)
    fleet.carry_out()
    fleet.planner.paused = "paused by alice: a bad driver"
    service = replace(LEADER, waits="not known yet: Nodes", started=fleet.mono - 12.0, plan_age=None, policy_file="",
        policy_error="policy.yaml, line 3: modes[0].check: must be text: write a check's name")  # fmt: skip
    assert look(status_page(status(fleet.planner, service, fleet.now))) == page("""
    FATAL  4 nodes: 1 fatal, 1 unknown.
    OBSERVE MODE - no new mark is set. 1 node would be quarantined: 1 withheld (too
    many agents are silent: see nodeguard status).
      paused    nothing new is marked: paused by alice: a bad driver
      frozen    nothing new is marked: 1 of 4 agents are silent and no domain
                explains 1 of them: see whether they can reach this aggregator
      waiting   nothing is written: not known yet: Nodes
      policy    kept out: policy.yaml, line 3: modes[0].check: must be text: write a
                check's name
      agents    4 expected, 3 reporting, 1 stale
      nodes     2 ok, 1 fatal, 1 unknown
      marked    nothing
      budgets   fleet 0 of 4
      incidents 1 dry run
      policy    observe; built in, no file
      leader    nodeguard-aggregator-6f7c9d-x2vbn (this one), up 12 s, no plan yet;
                nodeguard 0.1.0

    FATAL    node-1, GPU 0000:3b:00: gpu-lost, dry run, 2 min old
             would not quarantine node node-1: too many agents are silent: see
             nodeguard status
             nodeguard explain incident node-1-gpu-0000-3b-00-f750a6f0
    """)


def test_a_standby_names_the_leader() -> None:
    fleet = Fleet(1)
    fleet.after(1.0)
    told = status(fleet.planner, replace(LEADER, leads=False, leader="replica-1"), fleet.now)
    assert "  leader    replica-1; this one up 1 d 3 h, planned just now; nodeguard 0.1.0" in look(
        status_page(told)
    )
    told = status(fleet.planner, replace(LEADER, leader="standalone"), fleet.now)
    assert "  leader    standalone, up 1 d 3 h" in look(status_page(told))


def test_a_node_that_is_marked() -> None:
    assert explained(STORM, 2) == page("""
    FATAL  node-2: all new work is kept off it for gpu-ecc, gpu-lost.
      heard     just now
      sits in   8 GPUs, no pool, rack/r0

    QUARANTINE  gpu-ecc - GPU 0000:3c:00
      part      GPU-1
      since     2023-11-14 22:13:30 UTC, 12 min 50 s ago
      waits for gpu-ecc to prove that GPU 0000:3c:00 is in order

    QUARANTINE  gpu-lost - GPU 0000:3b:00
      part      GPU-1
      since     2023-11-14 22:26:20 UTC, just now
      waits for gpu-lost to find it no more; it finds it still

    FATAL  gpu-lost - GPU 0000:3b:00
      what      GPU 0000:3b:00 has fallen off the bus: Xid 79
      part      GPU-1
      since     2023-11-14 22:24:10 UTC, 2 min 10 s ago
      seen      nvml: gone
      mark      set
      more      nodeguard explain gpu-lost

      charged   to gpu-ecc, 12 min 50 s ago
      budgets   fleet 8 of 375, nodes of no pool 5 of 375, rack/r0 2 of 2, check
                gpu-ecc 1 of 15
      incident  node-2-gpu-0000-3b-00-eafa7dfb (marked)
      incident  node-2-gpu-0000-3c-00-356027bb (marked)
    """)


def test_a_node_whose_mark_is_withheld() -> None:
    assert explained(STORM, 7) == page("""
    FATAL  node-7: not marked, though gpu-lost asks for it: hold on the node: alice
           debugs it.
      heard     just now
      sits in   8 GPUs, pool training, rack/r0
      hold      alice debugs it; nothing is changed on it

    FATAL  gpu-lost - GPU 0000:3b:00
      what      GPU 0000:3b:00 has fallen off the bus: Xid 79
      part      GPU-1
      since     2023-11-14 22:24:10 UTC, 2 min 10 s ago
      seen      nvml: gone
      mark      withheld: hold on the node: alice debugs it
      more      nodeguard explain gpu-lost

      budgets   fleet 8 of 375, pool training 3 of 375, rack/r0 2 of 2
      incident  node-7-gpu-0000-3b-00-12be22f3 (withheld)
    """)


def test_a_node_that_nothing_is_wrong_with() -> None:
    assert explained(STORM, 5000) == page("""
    OK  node-5000: nothing wrong found.
      heard     just now
      sits in   8 GPUs, no pool, rack/r625

      budgets   fleet 8 of 375, nodes of no pool 5 of 375, rack/r625 0 of 2
    """)


def test_a_gpu_that_soaks_on_a_node_that_is_read_in_part() -> None:
    fleet = Fleet(2, Policy(mode=Mode.ENFORCE))
    fleet.publish(0)
    fleet.say(0, finding())
    fleet.change(0, taints=(foreign("nodeguard.dev/suspect", "x"),), unschedulable=True)
    fleet.after(10.0)
    fleet.carry_out()
    fleet.say(0)
    report = replace(fleet.reports["uid-0"], agent="0.1.0", knowledge=DataStatus.UNKNOWN, unread=(UnreadableTargets("infiniband", "counters", "permission denied", (PORT,)),),
        inventory=Inventory(driver="580.82.07", platform="dgx-h100"))  # fmt: skip
    fleet.planner.record_report("uid-0", report, fleet.now)
    fleet.carry_out()
    fleet.after(30.0)
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    OK  node-0: work is kept off its gpu-0; a person's cordon keeps all work off it.
      heard     just now; what it knows is unknown in part
      runs      nodeguard 0.1.0, driver 580.82.07, dgx-h100
      sits in   8 GPUs, no pool
      strange   taints that nodeguard does not know of, and leaves:
                nodeguard.dev/suspect=x

    QUARANTINE  gpu-lost - GPU 0000:3b:00, as device gpu-0
      part      GPU-1
      since     2023-11-14 22:13:30 UTC, 30 s ago
      waits for the soak period to end, while gpu-lost goes on proving it:
                2023-11-14 22:23:30 UTC, in 9 min 30 s

      charged   to gpu-lost, device gpu-0, 30 s ago
      budgets   fleet 0 of 1, nodes of no pool 0 of 1, check gpu-lost 1 of 15
      not read  infiniband of port mlx5_0/1: permission denied
      incident  node-0-gpu-0000-3b-00-21acaae0 (recovering)
    """)


def test_a_node_that_has_fallen_silent() -> None:
    fleet = Fleet(20)
    fleet.say(0, finding(health=Health.WARNING))
    fleet.reports.pop("uid-0")
    fleet.after(60.0)
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    UNKNOWN  node-0: nothing keeps work off it.
      heard     1 min ago; it does not report any more, its last report was warning
      sits in   8 GPUs, no pool

    WARNING  gpu-lost - GPU 0000:3b:00
      what      gpu-lost at gpu/0000:3b:00
      part      GPU-1
      since     2023-11-14 22:12:20 UTC, 2 min ago
      seen      nvml: gone
      mark      none: a warning marks nothing
      more      nodeguard explain gpu-lost

      budgets   fleet 0 of 20, nodes of no pool 0 of 20
      incident  node-0-gpu-0000-3b-00-21acaae0 (open)
    """)
    fleet.restart()
    fleet.carry_out()
    assert explained(fleet, 0) == page("""
    UNKNOWN  node-0: nothing is known of it.
      heard     never by this aggregator: see that its agent runs and reaches it
      sits in   8 GPUs, no pool

      budgets   fleet 0 of 20, nodes of no pool 0 of 20
    """)


def test_what_agents_call_their_checks_is_not_obeyed() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding("\x1b[2J\x9b1m", message="\x1b]0;owned\x07", health=Health.WARNING))
    fleet.after(10.0)
    fleet.carry_out()
    told = listed(fleet.planner, LEADER, fleet.now)
    seen = incident(fleet.planner, LEADER, told.incidents[0].name, fleet.now)
    assert seen is not None
    for text in (
        look(status_page(status(fleet.planner, LEADER, fleet.now))),
        look(incidents_page(told, 80)),
        look(incident_page(seen)),
        explained(fleet, 0),
    ):
        assert text.replace("\n", "").isprintable()
        assert "?[2J?1m" in text


def test_incidents_in_a_list() -> None:
    told = listed(STORM.planner, LEADER, STORM.now)
    few = replace(told, incidents=(*told.incidents[:2], *told.incidents[-2:]), more=3)
    few = replace(few, incidents=(replace(few.incidents[0], acknowledged="alice"), *few.incidents[1:]))
    assert look(incidents_page(few, 120), 120) == page("""
    HEALTH   STATE     AGE         CAUSE      INCIDENT
    fatal    withheld  2 min 10 s  gpu-lost   node-1-gpu-0000-3b-00-f750a6f0 (acknowledged: alice)
    fatal    withheld  2 min 10 s  port-down  node-102-port-mlx5-0-1-690d486f
    fatal    marked    14 min      gpu-ecc    node-2-gpu-0000-3c-00-356027bb
    suspect  marked    2 min 10 s  gpu-hot    node-11-gpu-0000-3b-00-6cfda3a9

    4 incidents and 3 more: narrow it with --node or --state
    """)
    assert look(incidents_page(few, 70), 70) == page("""
    HEALTH   STATE     AGE         CAUSE
    fatal    withheld  2 min 10 s  gpu-lost
      node-1-gpu-0000-3b-00-f750a6f0 (acknowledged: alice)
    fatal    withheld  2 min 10 s  port-down
      node-102-port-mlx5-0-1-690d486f
    fatal    marked    14 min      gpu-ecc
      node-2-gpu-0000-3c-00-356027bb
    suspect  marked    2 min 10 s  gpu-hot
      node-11-gpu-0000-3b-00-6cfda3a9

    4 incidents and 3 more: narrow it with --node or --state
    """)


def test_an_incident_in_full() -> None:
    name = next(name for name, one in STORM.planner.incidents["uid-2"].items() if one.cause == "gpu-ecc")
    told = incident(
        STORM.planner, replace(LEADER, decisions={name: OperatorDecision(name, "alice", "")}), name, STORM.now
    )
    assert told is not None
    assert look(incident_page(told)) == page("""
    FATAL  gpu-ecc - GPU 0000:3c:00 of node-2
      state     marked, new work is kept away: kept until proven to be over by
                gpu-ecc
      concerns  node node-2
      since     2023-11-14 22:12:20 UTC, 14 min ago
      changed   2023-11-14 22:26:20 UTC, just now
      what      12 uncorrectable errors in SRAM
      part      GPU-1
      known     acknowledged: alice
      more      nodeguard explain node node-2, nodeguard explain gpu-ecc

    QUARANTINE  gpu-ecc - GPU 0000:3c:00
      part      GPU-1
      since     2023-11-14 22:13:30 UTC, 12 min 50 s ago
      waits for gpu-ecc to prove that GPU 0000:3c:00 is in order
    """)


def test_a_suspect_keeps_only_gangs_away() -> None:
    [name] = STORM.planner.incidents["uid-11"]
    told = incident(STORM.planner, LEADER, name, STORM.now)
    assert told is not None
    assert "  state     marked, new gang work is kept away\n  concerns  node node-11\n" in look(
        incident_page(told)
    )


def test_a_node_whose_messages_are_refused_is_shown_at_the_top() -> None:
    fleet = Fleet(8)
    refusal = RejectedReport(
        "node-0", "other-boot", "another boot of this node is reporting: wait 30 s", 0.0, fleet.mono - 12.0, 3
    )
    service = replace(LEADER, refused=(refusal,))
    line = "  refused   3 messages of node-0 in the past minutes, the latest 12 s ago: another boot of this node is reporting: wait 30 s"
    assert look(status_page(status(fleet.planner, service, fleet.now)), 200).splitlines()[1] == line
    found = node(fleet.planner, service, "node-0", fleet.now)
    assert found is not None
    assert line in look(node_page(found), 200).splitlines()
