from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.policy import default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.scenario_run import Outcome, run_scenario
from nodeguard.simulate.scenarios import SCENARIOS, Expectation
from nodeguard.simulate.simulation import enforce_all
from tests.policies import FAULT_CLASSES

POLICY = enforce_all(default_policy(FAULT_CLASSES))
LEAF_DOWN = Outcome(("leaf",), (), (), (), ())


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_as_operators_want(agent: SimulatedAgent, name: str) -> None:
    result = run_scenario(agent, name, POLICY, 1)
    assert result.as_expected, result.outcome


def test_a_scenario_of_one_seed_always_ends_in_the_same_way(agent: SimulatedAgent) -> None:
    assert run_scenario(agent, "small-fleet", POLICY, 1) == run_scenario(agent, "small-fleet", POLICY, 1)


@pytest.mark.parametrize(
    ("outcome", "expected", "is_wanted"),
    [
        (LEAF_DOWN, Expectation(degraded=("leaf",)), True),
        (LEAF_DOWN, Expectation(), False),
        (replace(LEAF_DOWN, degraded=(), recovered=("leaf",)), Expectation(degraded=("leaf",)), False),
        (replace(LEAF_DOWN, degraded=(), recovered=("leaf",)), Expectation(any_recovered=True), True),
        (replace(LEAF_DOWN, quarantined=("a",)), Expectation(("leaf",), others=1), True),
        (replace(LEAF_DOWN, quarantined=("a",)), Expectation(("leaf",)), False),
        (replace(LEAF_DOWN, released=("a",)), Expectation(("leaf",)), False),
        (replace(LEAF_DOWN, released=("a",)), Expectation(("leaf",), quarantined=("a",)), False),
        (replace(LEAF_DOWN, suppressed=("x",)), Expectation(("leaf",)), False),
        (replace(LEAF_DOWN, suppressed=("x",)), Expectation(("leaf",), may_suppress=("x", "y")), True),
    ],
)
def test_an_outcome_is_compared_in_every_part(
    outcome: Outcome, expected: Expectation, is_wanted: bool
) -> None:
    assert outcome.is_as(expected) == is_wanted
