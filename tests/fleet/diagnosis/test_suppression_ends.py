"""Tests for nodeguard.fleet.diagnosis.suppressed_checks: what stays when a suppression ends, and when it does not end."""

from __future__ import annotations

import random

import pytest

from nodeguard.model.diagnosis import RecoveryPolicy
from tests.fleet.diagnosis.scene import Voters
from tests.fleet.diagnosis.test_suppressed_checks import (
    LOG,
    NVML,
    REAL,
    advance,
    lost,
    quiet_fleet,
    scattered,
    suppressed,
)
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("event", ["a suppression", "another rule"])
def test_the_usual_rate_of_a_check_stays_after(event: str) -> None:
    voters, order = Voters(), random.Random(3)
    voters.diagnosis.voting.add_check("gpu-ecc-corrected", (), warns=True)

    def hours_suppressed(days: int) -> int:
        """Pass some days with a warning an hour, which lasts for an hour."""
        hours = 0
        for _ in range(24 * days):
            nodes = order.sample(voters.nodes, 1)
            voters.show(nodes, "gpu-ecc-corrected")
            voters.after(3_600.0)
            voters.over(nodes, "gpu-ecc-corrected")
            hours += bool(voters.suppressed)
        return hours

    assert hours_suppressed(10) == 0
    if event == "a suppression":
        burst = order.sample(voters.nodes, 60)
        voters.show(burst, "gpu-ecc-corrected")
        voters.after(60.0)
        assert voters.suppressed
        voters.over(burst, "gpu-ecc-corrected")
    else:
        voters.diagnosis.set_rule(diagnosis_policy(recovery=RecoveryPolicy(max=20_000.0)))
    assert hours_suppressed(4) < 12


def test_onsets_of_a_false_alarm_do_not_hide_the_next() -> None:
    made = quiet_fleet(800, REAL, history=20_000.0)
    order = scattered(made, 60)
    for _ in range(24):
        for number in order[:20]:
            made.report(number, lost())
        advance(made, 120.0, 30.0)
        for number in order[:20]:
            made.report(number)
        advance(made, 180.0, 30.0)
    advance(made, 86_400.0, 600.0)
    assert suppressed(made) == set()
    for number in order[20:34]:
        made.report(number, lost())
    advance(made, 600.0)
    assert (suppressed(made), made.marked()) == ({"gpu-lost"}, [])


def test_proven_faults_are_marked_after_an_operator_clears_the_suppression_of_their_check() -> None:
    made = quiet_fleet(800, history=20_000.0)
    order = scattered(made, 32)
    proven, false, later = order[:12], order[12:20], order[20:]
    for number in proven:
        made.report(number, lost(LOG, NVML))
    for number in false:
        made.report(number, lost())
    advance(made, 60.0)
    for number in false:
        made.report(number)
    [incident] = [item for item in made.planner.all_incidents() if not item.node and item.is_open]
    made.planner.clear(incident, made.now)
    advance(made, 60.0)
    for number in later:
        made.report(number, lost())
    advance(made, 3_600.0, 30.0)
    assert suppressed(made) == {"gpu-lost"}
    assert set(made.marked()) >= set(proven)


def test_proven_faults_do_not_prolong_a_suppression() -> None:
    made = quiet_fleet(800, history=20_000.0)
    false, proven = scattered(made, 5), scattered(made, 60, seed=2)
    for number in false:
        made.report(number, lost())
    for number in proven[:24]:
        made.report(number, lost(LOG, NVML))
        advance(made, 3_600.0, 600.0)
        made.report(number)
        advance(made, 3_600.0, 600.0)
    assert made.planner.diagnosis.suppressed_checks["gpu-lost"].recovered
    made.report(proven[50], lost())
    advance(made, 60.0)
    assert proven[50] in made.marked()


def test_a_suppression_ends_when_its_nodes_no_longer_exist() -> None:
    made = quiet_fleet(200, history=20_000.0)
    nodes = scattered(made, 20)
    for number in nodes:
        made.report(number, lost())
    advance(made, 30_000.0, 60.0)
    for number in nodes:
        del made.nodes[f"uid-{number}"], made.reports[f"uid-{number}"]
        made.planner.remove_node(f"uid-{number}")
    advance(made, 120.0)
    assert suppressed(made) == set()


@pytest.mark.parametrize("remaining", [4, 19])
def test_a_false_alarm_that_still_fires_on_some_nodes_marks_few_of_them(remaining: int) -> None:
    made = quiet_fleet(800, history=20_000.0)
    nodes = scattered(made, 40)
    for number in nodes:
        made.report(number, lost())
    advance(made, 600.0)
    for number in nodes[remaining:]:
        made.report(number)
    worst = 0
    for _ in range(600):
        advance(made, 60.0, 30.0)
        worst = max(worst, len(made.marked()))
    assert worst <= 4
