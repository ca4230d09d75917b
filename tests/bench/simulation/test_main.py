from __future__ import annotations

import pytest

from bench.simulation import __main__ as evaluation
from bench.simulation.table import HELD_OUT, Inputs, Plan, Table, table
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.policy import default_policy


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of the evaluations, which do not run."""
    plans: list[Plan] = []

    def record(_: Inputs, plan: Plan, *__: object) -> Table:
        plans.append(plan)
        return Table(plan, (), (), None)

    monkeypatch.setattr(evaluation, "table", record)
    return plans


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], Plan(2560, 7500, 20, 20, 21_600.0, 1)),
        (["--nodes", "64", "--episodes", "3"], Plan(64, 64, 3, 3, 21_600.0, 1)),
        (["--seed", "7", "--days", "0", "--before", "0"], Plan(2560, 7500, 20, 0, 0.0, 7)),
        (["--held-out"], Plan(first=HELD_OUT)),
    ],
)
def test_every_option_is_obeyed(plans: list[Plan], options: list[str], expected: Plan) -> None:
    evaluation.main(options)
    assert plans == [expected]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nodes", "15"], "argument --nodes: '15' is out of range: expected 16 to 100000"),
        (["--days", "-1"], "argument --days: '-1' is not a whole number"),
        (["--before", "soon"], "argument --before: 'soon' is invalid: expected a number of seconds"),
        (["--seed", "2", "--held-out"], "argument --held-out: not allowed with argument --seed"),
    ],
)
def test_an_option_that_does_not_apply_is_refused(
    plans: list[Plan], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        evaluation.main(options)
    assert message in capsys.readouterr().err
    assert not plans


@pytest.mark.slow
def test_a_fleet_of_16_nodes_is_evaluated() -> None:
    catalogue, signals = load_catalogue()
    inputs = Inputs(catalogue, signals, default_policy(catalogue.fault_classes))
    result = table(inputs, Plan(16, 16, 1, 1, 0.0, 1, rollouts=()), 1, lambda _: None)
    assert {"leaf dead", "rack power"} <= {row.kind for row in result.faults}
    assert {"spine degraded", "NVLink tray"} <= set(result.unfit)
    assert result.quiet is not None
    assert result.quiet.fleet_nodes == 16
