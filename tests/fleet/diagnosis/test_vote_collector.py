"""Tests for nodeguard.fleet.diagnosis.vote_collector: nodes and their domains."""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.vote_collector import MAX_VOTES, VOTE_INTERVAL
from nodeguard.fleet.state.latest_report import TupleInterner, latest_report
from nodeguard.model.diagnosis import STALE_CHECK, VERSION_TOPOLOGIES, RecoveryPolicy
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels
from nodeguard.wire.report import VERSION, Inventory, Report, ReportedComponent
from tests.fleet.scene import Fleet, finding
from tests.policies import diagnosis_policy


def test_all_nodes_have_their_new_domains_from_the_next_plan_on() -> None:
    made = Fleet(0)
    for number in range(4):
        made.add(number, labels={"block": f"b{number // 2}"})
    made.after(1.0)
    diagnosis = made.planner.diagnosis
    assert set(diagnosis.members.domains()) == set()
    made.planner.state.import_topologies((TopologyLabels("fabric", ("block",)),))
    made.after(1.0)
    assert diagnosis.members.nodes("fabric/b1") == {"uid-2", "uid-3"}
    made.planner.state.import_topologies(())
    made.after(1.0)
    assert set(diagnosis.members.domains()) == set()


def test_the_votes_of_a_node_with_ever_new_checks_are_limited() -> None:
    made = Fleet(8, Policy(locations=(NodeLocation("node-*", {"rack": "r1"}),)))
    names = count()
    for _ in range(60):
        made.report(0, *(finding(f"made-up-{next(names)}", topologies=("rack",)) for _ in range(128)))
        made.after(1.0)
        made.plan()
    watches = made.planner.diagnosis.voting.firings
    assert MAX_VOTES - 2 <= len(watches) <= MAX_VOTES + 60 / VOTE_INTERVAL + 2
    # Another node's votes count as before, and its own count again after a while.
    made.report(1, finding("gpu-lost"))
    assert watches["gpu-lost"].active == {"uid-1"}
    made.after(2 * VOTE_INTERVAL)
    made.report(0, finding("gpu-lost"))
    assert watches["gpu-lost"].active == {"uid-0", "uid-1"}


def test_another_rule_counts_agents_that_stopped_long_ago_as_long_silent() -> None:
    rules = diagnosis_policy(), diagnosis_policy(recovery=RecoveryPolicy(max=20_000.0))
    policy = Policy(topologies=(TopologyLabels("fabric", ("pod", "rack")),), diagnosis=rules[0])
    made = Fleet(0, policy)
    for number in range(160):
        made.add(number, labels={"pod": f"p{number // 40}", "rack": f"r{number // 8}"})
    made.after(900.0)
    quiet = set[str]()
    # Three of a rack, and three others.
    for number in (0, 2, 5, 50, 90, 130):
        quiet.add(f"uid-{number}")
        for _ in range(100):
            made.after(900.0, quiet)
            made.carry_out()
    for rule in (None, rules[1]):
        if rule is not None:
            made.planner.set_policy(replace(policy, diagnosis=rule))
        for _ in range(24):
            made.after(5.0, quiet)
            made.carry_out()
        diagnosis = made.planner.diagnosis
        assert (dict(diagnosis.degraded_domains), dict(diagnosis.suppressed_checks)) == ({}, {})
        assert diagnosis.voting.firings[STALE_CHECK].active == quiet


def test_unused_check_names_are_forgotten() -> None:
    made = Fleet(8)
    voting, now = made.planner.diagnosis.voting, made.now.mono
    for number in range(10_000):
        voting.record_firing("uid-0", f"made-up-{number}", now)
        voting.vote("uid-0", f"made-up-{number}", now, ("rack",))
        voting.record_cleared("uid-0", f"made-up-{number}")
    voting.forget((), now + 10 * 86_400.0)
    assert voting.firings == {}
    assert voting._checks.keys() == {STALE_CHECK}


GPUS = {
    "gpu/0000:1b:00": ReportedComponent(vbios="97.00.82.00.5F"),
    "gpu/0000:3b:00": ReportedComponent(vbios="97.00.82.00.5F"),
    "gpu/0000:5d:00": ReportedComponent(vbios="97.00.88.00.01", firmware="no port's"),
}
PORTS = {
    "port/mlx5_0/1": ReportedComponent(firmware="28.39.1002"),
    "port/mlx5_1/1": ReportedComponent(vbios="no GPU's"),
}


def of(inventory: Inventory, agent: str = "", catalogue: str = "") -> tuple[str, ...]:
    report = Report(
        version=VERSION, node="n", boot_id="b", sequence=1, health=Health.OK, inventory=inventory, agent=agent,
        catalogue=catalogue,
    )  # fmt: skip
    return latest_report(report, Instant(1e9, 1.0, "b"), TupleInterner()).versions


def test_a_node_is_in_a_domain_of_each_version_that_it_or_one_of_its_parts_runs() -> None:
    found = of(Inventory("580.95.05", "6.8.0-60-generic", "", {**GPUS, **PORTS}), "0.2.0", "c0ffee")
    assert found == (
        "driver/580.95.05", "vbios/97.00.82.00.5F", "vbios/97.00.88.00.01", "kernel/6.8.0-60-generic",
        "firmware/28.39.1002", "agent/0.2.0", "catalogue/c0ffee",
    )  # fmt: skip
    assert {domain.partition("/")[0] for domain in found} == set(VERSION_TOPOLOGIES)


def test_an_unknown_version_is_no_domain() -> None:
    assert of(Inventory()) == ()


def test_a_version_is_one_level_of_a_path() -> None:
    assert of(Inventory(driver="580/beta")) == ("driver/580_beta",)
