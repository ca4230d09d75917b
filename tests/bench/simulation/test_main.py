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
        ([], Plan(nodes=2560, quiet_nodes=7500, episodes=20, runs=4, days=20, before=21_600.0, first=1)),
        (["--nodes", "64", "--episodes", "5"], Plan(nodes=64, quiet_nodes=64, episodes=5, runs=1, days=5)),
        (["--seed", "7", "--days", "0", "--before", "0"], Plan(days=0, before=0.0, first=7)),
        (["--no-comparison", "--rollouts", "9"], Plan(compares=False, runs=9)),
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
    result = table(
        inputs, Plan(nodes=16, quiet_nodes=16, episodes=1, days=1, before=0.0, rollouts=()), 1, lambda _: None
    )
    assert {"leaf dead", "rack power"} <= {row.kind for row in result.faults}
    assert {"spine degraded", "NVLink tray"} <= set(result.unfit)
    assert result.quiet is not None
    assert result.quiet.fleet_nodes == 16
