from __future__ import annotations

from random import Random

from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.baseline import cordoned
from nodeguard.simulate.faults import Fault, SimulatedAgents
from nodeguard.simulate.gangs import Gangs
from nodeguard.simulate.observer import UNMARKED, NodeMarkState
from nodeguard.simulate.outcome_counter import DomainDegraded, OutcomeCounter, score_diagnosis
from nodeguard.simulate.plot import Curve, svg
from nodeguard.simulate.shared_faults import SharedFault

OUT = NodeMarkState(quarantine=True)
HOUR = 3600.0


def test_what_is_out_is_needed_while_something_is_broken() -> None:
    account = OutcomeCounter()
    trouble = Fault(10.0, 50.0, 1, "gpu-lost", 0, "fabric/p0/leaf1")
    account.fault_started(trouble, 10.0)
    account.marks_changed(1, OUT, 20.0)
    account.fault_ended(trouble, 50.0)
    account.marks_changed(2, OUT, 55.0)
    account.marks_changed(1, UNMARKED, 60.0)
    account.close(65.0)
    assert (account.justified_seconds, account.unjustified_seconds) == (30.0, 20.0)
    assert (
        account.quarantines,
        account.correct_quarantines,
        account.max_quarantined,
        account.max_healthy_quarantined,
    ) == (2, 1, 2, 2)
    assert account.shared_fault_quarantines == {"fabric/p0/leaf1": 1}


def test_a_blame_is_right_where_a_fault_was_there_by_then() -> None:
    there = [
        SharedFault("two leaves at once", ("fabric/p0/leaf1", "fabric/p1/leaf0"), 100.0, 1000.0, ()),
        SharedFault("rack power", ("power/feed0/r1",), 5000.0, 6000.0, ()),
    ]
    blames = [
        DomainDegraded("power/feed0/r1", 50.0),
        DomainDegraded("fabric/p0/leaf1", 130.0),
        DomainDegraded("fabric/p0/leaf1", 900.0),
        DomainDegraded("fabric/p9", 950.0),
    ]
    match = score_diagnosis(blames, there)
    assert (match.expected, match.detected, match.detection_seconds, match.correct, match.wrong) == (
        3,
        1,
        (30.0,),
        1,
        2,
    )


def test_a_rule_that_cordons_for_anything_does_and_a_breaker_stops_it_when_half_are_out(
    agent: SimulatedAgent,
) -> None:
    troubles = [Fault(float(node), HOUR, node, "application") for node in range(8)]
    troubles.append(Fault(20.0, HOUR, 9, "silent"))
    moments = SimulatedAgents(agent).events(troubles, Random(1))
    for rule, out in (("cordon-any", 8), ("rate-breaker", 5)):
        account = OutcomeCounter()
        cordoned(moments, 10, [account], "cordon-any" if rule == "cordon-any" else "rate-breaker")
        assert (account.quarantines, account.max_quarantined, account.correct_quarantines) == (out, out, 0)
        assert account.unjustified_seconds == sum(HOUR - node for node in range(out))


def test_a_gang_dies_of_what_kills_and_comes_back_elsewhere() -> None:
    gangs = Gangs(nodes=10, size=4, chance=Random(1), share=0.4)
    assert (gangs.jobs, gangs.failures) == (1, 0)
    first = dict(gangs._job)
    for node in range(10):
        gangs.begins(Fault(0.0, HOUR, node, "warm"), 0.0)
    assert gangs.failures == 0
    victim = next(iter(first))
    gangs.begins(Fault(10.0, HOUR, victim, "gpu-lost"), 10.0)
    assert gangs.failures == 1
    gangs.marked(victim, OUT, 20.0)
    gangs.marked(0, UNMARKED, 2 * HOUR)
    assert len(gangs._job) == 4
    assert victim not in gangs._job
    assert gangs.job_days(86_400.0) == 1.0


def test_a_picture_shows_when_what_was_out() -> None:
    curve = Curve()
    curve.marked(1, OUT, 43_200.0)
    curve.marked(2, NodeMarkState(suspect=True), 50_000.0)
    curve.blamed("fabric/p0 & <all>", 60_000.0)
    curve.marked(1, UNMARKED, 64_800.0)
    assert curve.points == [(0.0, 0), (43_200.0, 1), (64_800.0, 0)]
    drawn = svg(curve, 1.0, "a <title>")
    assert "a &lt;title&gt;" in drawn
    assert "fabric/p0 &amp; &lt;all&gt;" in drawn
    assert 'd="M60.0 360.0H60.0V360.0H540.0V40.0H780.0V360.0H1020.0"' in drawn
