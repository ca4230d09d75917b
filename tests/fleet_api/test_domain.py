from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet_api.domain import blamed, domain, domains, meant
from nodeguard.fleet_api.incident import listed
from nodeguard.fleet_api.marks import marks
from nodeguard.fleet_api.node import node, nodes
from nodeguard.fleet_api.schema.domain import LackTold, OthersTold, ViewTold
from nodeguard.fleet_api.schema.node import DEGRADED
from nodeguard.fleet_api.service_state import Service
from nodeguard.fleet_api.status import status
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.wire.report import Inventory
from tests.fleet.decide.test_domain_marks import ENFORCED, FIRST, LEAF, fails, fleet, wait, well
from tests.fleet.scene import Fleet, finding

LEADER = Service("replica-0", leads=True, started=9_000.0, plan_age=0.4)


def failing() -> Fleet:
    """A leaf of which six nodes lost a link, one of them for a moment; another with two."""
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


def test_a_domain_that_is_to_blame() -> None:
    made = failing()
    told = domain(made.planner, FIRST, made.now)
    assert (told.state, told.kinds, told.marked, told.members, told.voting) == (
        IncidentState.MARKED,
        ("link-down", "link"),
        7,
        8,
        7,
    )
    assert told.says == f"{FIRST}: 6 of 7 nodes lost a link at once; its 4 siblings did not"
    assert told.until == "over when fewer than 2 of its nodes show it for 30 min"
    assert (told.age, told.began_age, told.times) == (5.0, 25.0, 1)
    assert told.incident in made.planner.incidents[""]
    assert [(one.node, one.check, one.target, one.age) for one in told.votes][:2] == [
        ("node-0", "port-down", "port/mlx5_0/1", 25.0),
        ("node-1", "", "", 25.0),
    ]
    assert told.others == (
        OthersTold("held, so nothing is changed on them", True, 1, ("node-6",)),
        OthersTold("under maintenance", False, 1, ("node-7",)),
    )
    assert (told.siblings, told.siblings_members, told.siblings_voters) == (4, 31, 0)
    assert told.parent is not None
    assert (told.parent.domain, told.parent.members, told.parent.voters) == ("fabric/p0", 40, 6)
    assert told.view == ViewTold(
        "fabric",
        24,
        ("pod", "rack"),
        (LackTold("pod", 1, ("node-200",)), LackTold("rack", 1, ("node-200",))),
    )


def test_how_far_one_is_from_being_to_blame() -> None:
    made = failing()
    told = domain(made.planner, "fabric/p1/r5", made.now)
    assert (told.state, told.says, told.until, told.incident, told.since) == (None, "", "", "", "")
    [down] = [one for one in told.classes if one.kind == "link-down"]
    assert (down.voters, down.by_share, down.by_chance, down.needs, down.within) == (2, 3, 2, 3, 120.0)
    assert [one.node for one in told.votes] == ["node-41", "node-42"]
    above = domain(made.planner, "fabric/p1", made.now)
    assert [(one.domain, one.voters) for one in above.children][:2] == [
        ("fabric/p1/r5", 2),
        ("fabric/p1/r6", 0),
    ]
    wait(made, 8_000.0)
    assert domain(made.planner, "fabric/p1/r5", made.now).votes == ()


def test_a_domain_is_meant_by_its_path_or_the_end_of_it() -> None:
    made = fleet()
    assert meant(made.planner, FIRST) == (FIRST,)
    assert meant(made.planner, "p0/r0") == (FIRST,)
    assert meant(made.planner, "r1") == ("fabric/p0/r1",)
    made.add(500, labels={"pod": "p1", "rack": "r1"})
    assert meant(made.planner, "r1") == ("fabric/p0/r1", "fabric/p1/r1")
    assert meant(made.planner, "0") == meant(made.planner, "") == ()


def test_domains_of_note_are_listed_and_all_where_that_is_asked() -> None:
    made = failing()
    told = domains(made.planner, made.now)
    assert [(one.domain, one.voters, one.state) for one in told.domains] == [
        (FIRST, 6, IncidentState.MARKED),
        ("fabric/p1/r5", 2, None),
        ("fabric/p0", 6, None),
        ("fabric/p1", 2, None),
    ]
    assert len(domains(made.planner, made.now, every=True).domains) == 24
    assert domains(Fleet(0).planner, made.now).views == ()


def test_the_status_counts_domains_and_tells_of_what_is_not_marked_first() -> None:
    made = fleet(160)
    for leaf in (0, 6, 12):
        fails(made, range(leaf * LEAF, leaf * LEAF + LEAF))
        wait(made, 60.0)
    told = status(made.planner, LEADER, made.now)
    assert told.domains == {IncidentState.MARKED: 2, IncidentState.WITHHELD: 1}
    first = told.blamed[0]
    assert (first.domain, first.why) == (
        "fabric/p2/r12",
        "budget of degraded domains used up: 2 of 2 new in 1 h",
    )
    assert told.marked[DEGRADED].nodes == 16
    assert [one.view for one in told.views] == ["fabric"]
    assert blamed(made.planner, made.now, 1)[0].state == IncidentState.WITHHELD
    lines = {one.domain: one for one in listed(made.planner, LEADER, made.now).incidents if not one.node}
    assert lines[FIRST].says == f"{FIRST}: 8 of 8 nodes lost a link at once; its 4 siblings did not"
    assert "; budget of degraded domains used up: 2 of 2 new in 1 h; " in lines["fabric/p2/r12"].says


def test_what_is_observed_alone_is_told_as_that() -> None:
    made = fleet(policy=replace(ENFORCED, blame=DiagnosisPolicy()))
    fails(made)
    wait(made, 20.0)
    told = domain(made.planner, FIRST, made.now)
    assert (told.state, told.marked) == (IncidentState.DRY_RUN, 0)
    assert status(made.planner, LEADER, made.now).domains == {IncidentState.DRY_RUN: 1}


def test_the_mark_of_a_domain_is_told_of_its_nodes() -> None:
    made = failing()
    [mark] = marks(made.planner, "uid-5", made.now)
    assert (mark.mark, mark.check, mark.target, mark.word, mark.written, mark.wait.on) == (
        DEGRADED,
        "link-down",
        FIRST,
        "fabric",
        True,
        "domain",
    )
    assert mark.wait.says == f"{FIRST} to be in order: over when fewer than 2 of its nodes show it for 30 min"
    assert {one.node: one.marks for one in nodes(made.planner, made.now).nodes}["node-5"] == (DEGRADED,)
    page = node(made.planner, LEADER, "node-5", made.now)
    assert page is not None
    assert page.domains == ("fabric/p0", FIRST)
    assert {one.why for one in page.findings} == {f"told of as {FIRST}, which is degraded"}
    well(made)
    made.planner.diagnosis.clear(FIRST, made.now.mono)
    assert domain(made.planner, FIRST, made.now).state is None
    made.carry_out()
    assert marks(made.planner, "uid-5", made.now) == ()


def test_a_check_that_is_held_is_told_with_its_reason() -> None:
    made = fleet(120, replace(ENFORCED, blame=DiagnosisPolicy()))
    wait(made, 700.0)
    for number in (0, 9, 41, 49, 89, 97):
        made.say(number, finding(age=0.0))
        wait(made, 5.0)
    wait(made, 20.0)
    [held] = status(made.planner, LEADER, made.now).held
    assert (held.check, held.domain, held.nodes) == ("gpu-lost", "", 6)
    assert held.why.startswith("it fires on 6 nodes that share nothing")
    assert domains(made.planner, made.now).held == (held,)


def test_a_version_with_which_alone_a_check_fires() -> None:
    made = fleet(120, replace(ENFORCED, blame=DiagnosisPolicy()))
    wait(made, 700.0)

    def runs(number: int, driver: str) -> None:
        uid = f"uid-{number}"
        made.reports[uid] = replace(made.reports[uid], inventory=Inventory(driver=driver))
        made.planner.record_report(uid, made.reports[uid], made.now)

    for number in range(120):
        runs(number, "570.1" if number % 3 else "580.95")
    for number in (0, 9, 18, 27, 42, 51, 60, 81, 99, 111):
        made.say(number, finding(age=0.0))
        runs(number, "580.95")
        wait(made, 5.0)
    wait(made, 20.0)
    [path] = meant(made.planner, "580.95")
    told = domain(made.planner, path, made.now)
    assert [(one.check, one.domain) for one in told.held] == [("gpu-lost", "driver/580.95")]
    assert (told.members, told.siblings, told.view.keys) == (40, 1, ())
    assert [(one.node, one.check) for one in told.votes][:2] == [
        ("node-0", "gpu-lost"),
        ("node-18", "gpu-lost"),
    ]
    assert domain(made.planner, "driver/570.1", made.now).held == ()
    assert [(one.view, one.domains) for one in domains(made.planner, made.now).views] == [
        ("fabric", 18),
        ("driver", 2),
    ]
