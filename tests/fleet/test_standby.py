"""A standby that sees the mark of a node before it has the report: it knows the same incident as the leader."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.model.policy import SoakPeriod
from tests.fleet.cluster_planner import ClusterPlanner
from tests.fleet.scene import AT_ONCE, CHECKS, Fleet, finding

SOAKING = replace(AT_ONCE, soak=SoakPeriod(60.0, 60.0, 86_400.0))


def test_an_incident_that_begins_with_the_mark_has_the_begin_of_its_findings_once_they_are_reported() -> None:
    leader = Fleet(4, SOAKING)
    leader.report(0, finding(age=600.0))
    leader.carry_out()
    [of_leader] = leader.planner.all_incidents()
    standby = ClusterPlanner(leader.policy, CHECKS)
    for node in leader.nodes.values():
        standby.observe_node(node)
    for age in (None, 3.0):
        if age is not None:
            leader.after(age)
            standby.record_report("uid-0", replace(leader.reports["uid-0"], age=age), leader.now)
        standby.tick(leader.now)
        PlanLoop(standby).step(leader.now)
    [of_standby] = standby.all_incidents()
    assert (of_standby.name, of_standby.first_seen) == (of_leader.name, of_leader.first_seen)
