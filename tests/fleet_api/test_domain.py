from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet_api.domain import degraded_domains, describe_domain, domains_named, list_domains
from nodeguard.fleet_api.incident import list_incidents
from nodeguard.fleet_api.marks import marks_of_node
from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.schema.domain import MemberGroupView, MissingLabelView, TopologyView
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.model.diagnosis import RecoveryPolicy
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from nodeguard.wire.report import Inventory
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, fails, faulty, fleet, wait, well
from tests.fleet.scene import Fleet, finding
from tests.policies import diagnosis_policy

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0, plan_age=0.4)


def failing() -> Fleet:
    """Return a fleet with two leaves: six nodes lost a link in the first, one of them briefly, and two in the
    other.
    """
    made = fleet(160)
    made.change(7, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    made.change(6, annotations={HOLD_ANNOTATION: "mine"})
    made.change(9, unschedulable=True)
    made.add(200, labels={})
    fails(made, range(6))
    wait(made, 20.0)
    well(made, [1])
    fails(made, [41, 42])
    wait(made, 5.0)
    return made


def test_a_degraded_domain() -> None:
    made = failing()
    view = describe_domain(made.planner, LEADER, FIRST, made.now)
    expected = (IncidentState.MARKED, ("link-down", "link"), 7, 8, 7)
    assert (view.state, view.fault_classes, view.marked, view.members, view.voting) == expected
    evidence = f"{FIRST}: 6 of 7 nodes lost a link at once; the other 4 domains of fabric/p0 did not"
    assert view.evidence == evidence
    assert view.clears_when == "fewer than 2 of its nodes show it for 30 min"
    assert (view.age, view.began_age, view.times_degraded) == (5.0, 25.0, 1)
    assert view.incident in made.planner.tracker.recorded.by_uid[""]
    assert [(item.node, item.check, item.target, item.age) for item in view.votes][:2] == [
        ("node-0", "port-down", "port/mlx5_0/1", 25.0),
        ("node-1", "", "", 25.0),
    ]
    assert view.member_groups == (
        MemberGroupView("on hold: nodeguard changes nothing on them", True, 1, ("node-6",)),
        MemberGroupView("under maintenance", False, 1, ("node-7",)),
    )
    assert (view.siblings, view.siblings_members, view.siblings_voters) == (4, 31, 0)
    assert view.parent is not None
    assert (view.parent.domain, view.parent.members, view.parent.voters) == ("fabric/p0", 40, 6)
    assert view.topology == TopologyView(
        "fabric",
        24,
        ("pod", "rack"),
        (MissingLabelView("pod", 1, ("node-200",)), MissingLabelView("rack", 1, ("node-200",))),
    )


def test_the_end_of_a_degraded_domain_has_the_time_of_the_policy() -> None:
    made = fleet(160, replace(ENFORCED, diagnosis=diagnosis_policy(recovery=RecoveryPolicy(initial=600.0))))
    fails(made, range(6))
    wait(made, 20.0)
    view = describe_domain(made.planner, LEADER, FIRST, made.now)
    assert view.guidance is not None
    ends = "nodeguard ends it when fewer than 2 of its nodes show it for 10 min."
    assert view.guidance.end == f"The ports of the nodes are active again. {ends}"


def test_a_domain_below_its_threshold() -> None:
    made = failing()
    view = describe_domain(made.planner, LEADER, "fabric/p1/r5", made.now)
    assert (view.state, view.evidence, view.clears_when, view.incident, view.since) == (None, "", "", "", "")
    [down] = [item for item in view.classes if item.fault_class == "link-down"]
    expected = (2, 3, 2, 3, 120.0)
    assert (down.voters, down.share_threshold, down.chance_threshold, down.threshold, down.window) == expected
    assert [item.node for item in view.votes] == ["node-41", "node-42"]
    above = describe_domain(made.planner, LEADER, "fabric/p1", made.now)
    assert [(item.domain, item.voters) for item in above.children][:2] == [
        ("fabric/p1/r5", 2),
        ("fabric/p1/r6", 0),
    ]
    wait(made, 8_000.0)
    assert describe_domain(made.planner, LEADER, "fabric/p1/r5", made.now).votes == ()


def test_a_domain_is_found_by_its_path_or_the_end_of_it() -> None:
    made = fleet()
    assert domains_named(made.planner, FIRST) == (FIRST,)
    assert domains_named(made.planner, "p0/r0") == (FIRST,)
    assert domains_named(made.planner, "r1") == ("fabric/p0/r1",)
    made.add(500, labels={"pod": "p1", "rack": "r1"})
    assert domains_named(made.planner, "r1") == ("fabric/p0/r1", "fabric/p1/r1")
    assert domains_named(made.planner, "0") == domains_named(made.planner, "") == ()


def test_a_degraded_domain_that_all_nodes_have_left() -> None:
    made = faulty(60.0)
    for number in range(LEAF):
        made.change(number, labels={"pod": f"p{number % 2}", "rack": "r7"})
    wait(made, 60.0)
    assert domains_named(made.planner, FIRST) == (FIRST,)
    view = describe_domain(made.planner, LEADER, FIRST, made.now)
    assert (view.members, view.marked, view.state) == (LEAF, LEAF, IncidentState.MARKED)
    assert (
        view.evidence
        == f"{FIRST}: 8 of 8 nodes lost a link at once; the other 4 domains of fabric/p0 did not"
    )
    listed = list_domains(made.planner, made.now).domains
    assert [domain.domain for domain in listed if domain.state is not None] == [FIRST]


def test_domains_with_faults_are_listed_and_all_on_request() -> None:
    made = failing()
    view = list_domains(made.planner, made.now)
    assert [(item.domain, item.voters, item.state) for item in view.domains] == [
        (FIRST, 6, IncidentState.MARKED),
        ("fabric/p1/r5", 2, None),
        ("fabric/p0", 6, None),
        ("fabric/p1", 2, None),
    ]
    assert len(list_domains(made.planner, made.now, include_healthy=True).domains) == 24
    assert list_domains(Fleet(0).planner, made.now).topologies == ()


def test_the_status_counts_domains_and_lists_unmarked_ones_first() -> None:
    made = fleet(160)
    for leaf in (0, 6, 12):
        fails(made, range(leaf * LEAF, leaf * LEAF + LEAF))
        wait(made, 60.0)
    view = fleet_status(made.planner, LEADER, made.now)
    assert view.domains == {IncidentState.MARKED: 2, IncidentState.WITHHELD: 1}
    first = view.degraded_domains[0]
    assert (first.domain, first.reason) == (
        "fabric/p2/r12",
        "budget of degraded domains has reached its limit: 2 of 2 new in 1 h",
    )
    assert view.marked[Mark.DOMAIN_DEGRADED].nodes == 16
    assert [item.topology for item in view.topologies] == ["fabric"]
    assert degraded_domains(made.planner, made.now, 1)[0].state == IncidentState.WITHHELD
    lines = {
        item.domain: item
        for item in list_incidents(made.planner, LEADER, made.now).incidents
        if not item.node
    }
    assert (
        lines[FIRST].summary
        == f"{FIRST}: 8 of 8 nodes lost a link at once; the other 4 domains of fabric/p0 did not"
    )
    assert (
        "; budget of degraded domains has reached its limit: 2 of 2 new in 1 h; "
        in lines["fabric/p2/r12"].summary
    )


def test_a_topology_in_observe_mode_is_a_dry_run() -> None:
    made = faulty(policy=replace(ENFORCED, diagnosis=diagnosis_policy()))
    view = describe_domain(made.planner, LEADER, FIRST, made.now)
    assert (view.state, view.marked) == (IncidentState.DRY_RUN, 0)
    assert fleet_status(made.planner, LEADER, made.now).domains == {IncidentState.DRY_RUN: 1}


def test_the_mark_of_a_domain_is_shown_on_its_nodes() -> None:
    made = failing()
    [mark] = marks_of_node(made.planner, "uid-5", made.now)
    expected = (Mark.DOMAIN_DEGRADED, "link-down", FIRST, "fabric", True, "domain")
    assert (mark.mark, mark.check, mark.target, mark.fault_class, mark.written, mark.wait.on) == expected
    assert mark.wait.message == f"{FIRST} to recover: ends when fewer than 2 of its nodes show it for 30 min"
    assert {item.node: item.marks for item in list_nodes(made.planner, made.now).nodes}["node-5"] == (
        Mark.DOMAIN_DEGRADED,
    )
    page = describe_node(made.planner, LEADER, "node-5", made.now)
    assert page is not None
    assert page.domains == ("fabric/p0", FIRST)
    assert {item.reason for item in page.findings} == {f"reported as {FIRST}, which is degraded"}
    [incident] = page.incidents
    assert (incident.domain, {item.explained_by for item in page.findings}) == (FIRST, {incident.name})
    well(made)
    made.planner.diagnosis.clear(FIRST, made.now.mono)
    assert describe_domain(made.planner, LEADER, FIRST, made.now).state is None
    made.carry_out()
    assert marks_of_node(made.planner, "uid-5", made.now) == ()


def test_a_suppressed_check_has_its_reason() -> None:
    made = fleet(120, replace(ENFORCED, diagnosis=diagnosis_policy()))
    wait(made, 700.0)
    for number in (0, 9, 41, 49, 89, 97):
        made.report(number, finding(age=0.0))
        wait(made, 5.0)
    wait(made, 20.0)
    [held] = fleet_status(made.planner, LEADER, made.now).suppressed_checks
    assert (held.check, held.domain, held.nodes) == ("gpu-lost", "", 6)
    assert held.reason.startswith(
        "it fires on 6 nodes that no failure domain explains; up to 4 within 10 min"
    )
    assert list_domains(made.planner, made.now).suppressed_checks == (held,)


def test_a_check_that_fires_on_one_version_only() -> None:
    made = fleet(120, replace(ENFORCED, diagnosis=diagnosis_policy()))
    wait(made, 700.0)

    def runs(number: int, driver: str) -> None:
        uid = f"uid-{number}"
        made.reports[uid] = replace(made.reports[uid], inventory=Inventory(driver=driver))
        made.planner.record_report(uid, made.reports[uid], made.now)

    for number in range(120):
        runs(number, "570.1" if number % 3 else "580.95")
    for number in (0, 9, 18, 27, 42, 51, 60, 81, 99, 111):
        made.report(number, finding(age=0.0))
        runs(number, "580.95")
        wait(made, 5.0)
    wait(made, 20.0)
    [path] = domains_named(made.planner, "580.95")
    view = describe_domain(made.planner, LEADER, path, made.now)
    assert [(item.check, item.domain) for item in view.suppressed_checks] == [("gpu-lost", "driver/580.95")]
    assert (view.members, view.siblings, view.topology.keys) == (40, 1, ())
    assert [(item.node, item.check) for item in view.votes][:2] == [
        ("node-0", "gpu-lost"),
        ("node-18", "gpu-lost"),
    ]
    assert describe_domain(made.planner, LEADER, "driver/570.1", made.now).suppressed_checks == ()
    assert [(item.topology, item.domains) for item in list_domains(made.planner, made.now).topologies] == [
        ("fabric", 18),
        ("driver", 2),
    ]
