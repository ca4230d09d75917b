"""Tests for nodeguard.fleet.diagnosis.degraded_domains, in the plan of a fleet: how long a domain is degraded."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.messages import degraded_message
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import TopologyLabels
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.diagnosis.scene import Voters
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, domains, down, fails, fleet, wait, well
from tests.fleet.scene import Fleet

DEGRADED = {("nodeguard.dev/domain-degraded=fabric",)}


def slow(age: float = 0.0) -> ReportedFinding:
    """Return the finding of a slow port, which votes in the class `link` only."""
    return replace(down(age), check="port-rate", health=Health.SUSPECT)


def lost(age: float = 0.0, latest: float = 0.0) -> ReportedFinding:
    """Return the warning of a lost link: its age, and the age of the latest loss, in seconds."""
    evidence = (ReportedEvidence("infiniband", "port.link_downed rose by 1 to 1", age=latest),)
    return replace(down(age), check="port-link-downed", health=Health.WARNING, evidence=evidence)


def taints(made: Fleet, numbers: Iterable[int] = range(LEAF)) -> set[tuple[str, ...]]:
    return {tuple(made.taints(number)) for number in numbers}


def aged(made: Fleet, seconds: float) -> None:
    """Let the findings of all reports be older by some seconds, as a new aggregator receives them."""
    made.reports = {
        uid: replace(
            report, findings=tuple(replace(finding, age=finding.age + seconds) for finding in report.findings)
        )
        for uid, report in made.reports.items()
    }


def test_a_domain_stays_degraded_while_its_nodes_show_the_fault() -> None:
    made = fleet()
    for number in range(6):
        made.report(number, slow())
    wait(made, 4_000.0)
    assert taints(made) == DEGRADED
    well(made, range(5))
    wait(made, 1_700.0)
    assert taints(made) == DEGRADED, "the soak period begins with the recovery"
    wait(made, 200.0)
    assert [incident.state for incident in domains(made)] == [IncidentState.RESOLVED]


def test_the_incident_of_a_marked_domain_is_reported_once() -> None:
    made = fleet()
    fails(made)
    wait(made, 60.0)
    assert [incident.state for incident in domains(made)] == [IncidentState.MARKED]
    assert made.plan().incidents == ()


def test_a_domain_that_flaps_is_degraded_until_it_has_been_quiet_for_the_soak_period() -> None:
    made = fleet()
    for number in range(LEAF):
        made.report(number, lost())
    wait(made, 30.0)
    for round_number in range(1, 6):
        wait(made, 1_200.0)
        for number in range(LEAF):
            made.report(number, lost(age=1_200.0 * round_number))
    assert taints(made) == DEGRADED
    wait(made, 1_700.0)
    assert taints(made) == DEGRADED
    wait(made, 200.0)
    assert [incident.state for incident in domains(made)] == [IncidentState.RESOLVED]


def test_a_warning_of_a_past_fault_does_not_keep_a_domain_degraded() -> None:
    made = fleet()
    for number in range(LEAF):
        made.report(number, lost())
    wait(made, 2_000.0)
    assert [incident.state for incident in domains(made)] == [IncidentState.RESOLVED]


def test_a_domain_with_cordoned_nodes_stays_degraded_while_they_show_the_fault() -> None:
    made = fleet()
    fails(made)
    wait(made, 20.0)
    for number in range(LEAF):
        made.change(number, unschedulable=True)
    wait(made, 2_400.0)
    assert taints(made) == DEGRADED
    assert [incident.state for incident in domains(made)] == [IncidentState.MARKED]
    aged(made, 2_400.0)
    made.restart()
    wait(made, 2_400.0)
    assert taints(made) == DEGRADED, "a new aggregator sees the fault on cordoned nodes, too"
    well(made)
    wait(made, 2_000.0)
    assert made.marked() == []


def test_nodes_without_a_report_keep_their_domain_degraded_after_a_restart() -> None:
    made = fleet()
    fails(made)
    wait(made, 20.0)
    for number in range(LEAF):
        del made.reports[f"uid-{number}"]
    made.restart()
    wait(made, 2_400.0)
    assert taints(made) == DEGRADED


def test_a_dead_leaf_that_an_aggregator_finds_at_its_start_stays_degraded() -> None:
    made = fleet()
    fails(made)
    aged(made, 400.0)
    made.restart()
    wait(made, 60.0)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}
    wait(made, 2_400.0)
    assert taints(made) == DEGRADED


def test_a_domain_that_widens_beyond_its_budget_keeps_its_mark_in_place_of_node_marks() -> None:
    made = fleet()
    fails(made, range(16, 22))
    wait(made, 2_000.0)
    fails(made, (4, 6, 9, 11, 25, 27, 33, 35))
    wait(made, 300.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/p0"}
    assert [incident.state for incident in domains(made)] == [IncidentState.WITHHELD]
    assert taints(made, range(16, 24)) == DEGRADED
    incidents = made.planner.tracker.recorded.by_uid[""].values()
    aged(made, 300.0)
    made.restart(incidents=incidents)
    wait(made, 300.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/p0"}
    assert taints(made, range(16, 24)) == DEGRADED


FEEDS = replace(
    ENFORCED, topologies=(TopologyLabels("fabric", ("leaf",)), TopologyLabels("power", ("feed",)))
)


def fleet_with_feeds() -> Fleet:
    """Leaves of eight nodes, feeds of 16, with a day of normal reports."""
    made = Fleet(0, FEEDS)
    for number in range(160):
        made.add(number, labels={"leaf": f"l{number % 20}", "feed": f"f{number // 16}"})
    for _ in range(150):
        made.after(600.0)
        made.carry_out()
    return made


def test_a_domain_that_ended_explains_the_onsets_until_its_end() -> None:
    made = fleet_with_feeds()
    fails(made, range(27, 160, 20))
    wait(made, 200.0)
    for number in range(16):
        made.change(number, ready=False, not_ready_since=made.wall)
    for _ in range(60):
        made.after(5.0, quiet={f"uid-{number}" for number in range(16)})
        made.carry_out()
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/l7", "power/f0"}
    for number in range(16):
        made.change(number, ready=True)
        made.report(number)
    [incident] = [incident for incident in domains(made) if incident.domain == "power/f0"]
    made.planner.clear(incident, made.now)
    wait(made, 120.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/l7"}
    assert not made.planner.diagnosis.suppressed_checks


def evidence(voters: Voters, domain: str = "fabric/p1/l3") -> str:
    """Return the shares in the evidence against a degraded domain."""
    diagnosis = voters.diagnosis
    return degraded_message(diagnosis.degraded_domains[domain], diagnosis.rule).partition(" lost")[0]


def test_the_evidence_counts_the_nodes_that_still_exist() -> None:
    voters = Voters()
    leaf = voters.leaf(1, 3)
    voters.show(leaf[:14])
    voters.after(20.0)
    assert evidence(voters) == "fabric/p1/l3: 14 of 16 nodes"
    voters.move(leaf[0])
    voters.look()
    assert evidence(voters) == "fabric/p1/l3: 13 of 15 nodes"
    voters.move(leaf[15])
    voters.look()
    assert evidence(voters) == "fabric/p1/l3: 13 of 14 nodes"
    for uid in leaf:
        voters.move(uid)
    voters.look()
    assert evidence(voters) == "fabric/p1/l3: the nodes that"


def test_a_cordoned_voter_counts_in_the_evidence_and_a_healthy_one_that_moved_does_not() -> None:
    voters = Voters()
    leaf = voters.leaf(1, 3)
    voters.show(leaf)
    voters.after(20.0)
    voters.diagnosis.voting.set_domains(leaf[0], ())
    voters.over(leaf[1:2])
    voters.move(leaf[1], "fabric/p1/l4")
    voters.show(leaf[2:4], "port-link-downed")
    voters.after(20.0)
    assert evidence(voters) == "fabric/p1/l3: 15 of 15 nodes"


def test_a_candidate_with_nodes_that_no_longer_exist_is_not_degraded() -> None:
    voters = Voters()
    leaf, (first, second, third) = voters.leaf(1, 3, 4), voters.leaf(2, 2, 3)
    voters.show([first], "port-link-downed", every=3.0)
    voters.show(leaf, "port-link-downed")
    voters.after(3.0)
    voters.show([second], "port-link-downed", every=11.0)
    for uid in leaf[:2]:
        voters.move(uid)
    voters.after(1.5)
    # All candidates are evaluated again later; the clock of this one has run out.
    voters.show([third], "port-link-downed")
    assert voters.degraded == []


def test_domains_that_fail_at_once_are_degraded_in_the_same_order_on_each_run() -> None:
    made = fleet(400)
    fails(made, [pod * 40 + number for pod in range(10) for number in range(8)])
    wait(made, 30.0)
    assert list(made.planner.diagnosis.degraded_domains) == [f"fabric/p{pod}/r{pod * 5}" for pod in range(10)]
