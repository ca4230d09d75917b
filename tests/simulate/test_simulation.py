from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.policy import Mode, default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.random_faults import DEFAULT_RATES
from nodeguard.simulate.simulation import SimulationSettings, enforce_all, simulate
from tests.policies import FAULT_CLASSES

SETTINGS = SimulationSettings(nodes=300, days=2.0, seed=3)
RATES = replace(DEFAULT_RATES, faults=0.05)


def test_a_result_is_consistent_and_repeatable(agent: SimulatedAgent) -> None:
    result = simulate(agent, enforce_all(default_policy(FAULT_CLASSES)), SETTINGS, RATES)
    assert result == simulate(agent, enforce_all(default_policy(FAULT_CLASSES)), SETTINGS, RATES)
    assert result.quarantines >= result.correct_quarantines > 0
    assert result.justified_capacity_lost > result.unjustified_capacity_lost >= 0.0


def test_observe_mode_sets_no_marks(agent: SimulatedAgent) -> None:
    enforced = simulate(agent, enforce_all(default_policy(FAULT_CLASSES)), SETTINGS, RATES)
    observed = simulate(agent, replace(default_policy(FAULT_CLASSES), mode=Mode.OBSERVE), SETTINGS, RATES)
    assert (observed.quarantines, observed.max_quarantined) == (0, 0)
    assert (observed.justified_capacity_lost, observed.unjustified_capacity_lost) == (0.0, 0.0)
    assert observed.incidents_per_day == pytest.approx(enforced.incidents_per_day, rel=0.2)


def test_a_fleet_too_small_for_any_shared_fault_has_none(agent: SimulatedAgent) -> None:
    rates = replace(RATES, shared={"leaf dead": 10_000.0, "rack power": 10_000.0})
    result = simulate(agent, enforce_all(default_policy(FAULT_CLASSES)), SimulationSettings(4, 2.0), rates)
    assert result.shared_faults == 0
    assert result.intervals.diagnosis_recall is None


def test_each_share_is_within_its_interval(agent: SimulatedAgent) -> None:
    result = simulate(agent, enforce_all(default_policy(FAULT_CLASSES)), SETTINGS, RATES)
    assert result.intervals.correct_quarantines is not None
    low, high = result.intervals.correct_quarantines
    assert 0.0 < low <= result.correct_quarantines / result.quarantines <= high <= 1.0
    low, high = result.intervals.false_domains_per_day
    assert low <= result.false_domains_per_day <= high
