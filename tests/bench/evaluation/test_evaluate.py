from __future__ import annotations

import pytest

from bench.evaluation.evaluate import ROLLOUTS, EvaluationInputs, EvaluationPlan, evaluate
from bench.evaluation.rollouts import Rollout, rollout_title
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.policy import default_policy
from nodeguard.simulate.simulation import enforce_all


@pytest.mark.slow
def test_a_fleet_of_16_nodes_is_evaluated() -> None:
    catalogue, signals = load_catalogue()
    inputs = EvaluationInputs(catalogue, signals, enforce_all(default_policy(catalogue.fault_classes)))
    steps: list[str] = []
    plan = EvaluationPlan(nodes=16, episodes=1, days=1, before=0.0, rollouts=())
    result = evaluate(inputs, plan, 1, steps.append)
    assert {"leaf dead", "rack power"} <= {row.kind for row in result.faults}
    assert {"spine degraded", "NVLink tray"} <= set(result.unfit)
    assert result.normal_days is not None
    assert result.normal_days.fleet_nodes == 16
    assert steps == [*(f"{row.kind}: 1 episode" for row in result.faults), "1 normal day"]


def test_each_rollout_has_a_title_of_its_own() -> None:
    assert rollout_title(Rollout("port-down", 0.1, 0.0)) == "port-down on 10% at once"
    assert (
        rollout_title(Rollout("port-down", 1.0, 7200.0, by_rack=True))
        == "port-down on 100% over 2 h, rack by rack"
    )
    assert len(set(map(rollout_title, ROLLOUTS))) == len(ROLLOUTS)
