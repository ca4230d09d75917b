from __future__ import annotations

from bench.evaluation.evaluate import HELD_OUT, EvaluationPlan, EvaluationResult
from bench.evaluation.figures import share
from bench.evaluation.rollouts import Rollout
from bench.evaluation.rows import FaultRow, NormalDaysRow, RolloutRow
from bench.evaluation.tables import evaluation_lines
from nodeguard.cli.render.terminal import format_lines

NORMAL_DAYS = NormalDaysRow(7500, 10.0, 0.1, 0.0, 0.3, 3.2, 0.5)


def lines(result: EvaluationResult) -> list[str]:
    return format_lines(list(evaluation_lines(result))).splitlines()


def test_the_tables_have_a_line_for_each_row() -> None:
    fault = FaultRow("leaf dead", share(9, 10), share(0, 0), 20.0, None, 24.4, 0.0, 0)
    other = FaultRow("rack power", share(10, 10), share(10, 10), 20.0, None, None, 0.0, 0)
    rollout = RolloutRow(Rollout("gpu-reset-required", 0.1, 1800.0), 5, share(3, 4), 50.0, (15.0, None), 0)
    plan = EvaluationPlan(nodes=7500, seed=HELD_OUT)
    assert lines(EvaluationResult(plan, (fault, other), (rollout,), NORMAL_DAYS, ("NVLink tray",))) == [
        "evaluation - 7500 nodes, seeds from 10000; intervals at 95%",
        "",
        "20 episodes of each kind, after 6 h of normal operation",
        "SHARED FAULT  RECALL             PRECISION          DELAY 50%  QUARANTINED  WITHOUT DIAGNOSIS  WRONGLY SUPPRESSED",
        "leaf dead     0.90 [0.60, 0.98]  -                  20 s       0.0          24.4               0",
        "rack power    1.00 [0.72, 1.00]  1.00 [0.72, 1.00]  20 s       0.0          -                  0",
        "all           0.95 [0.76, 0.99]  1.00 [0.72, 1.00]",
        "not evaluated, as the fleet has too few domains: NVLink tray; use more --nodes",
        "",
        "4 runs of each rollout",
        "FALSE ALARMS                           QUARANTINED  SUPPRESSED         DELAY 50%  FROM 5TH NODE 50%  DOMAINS",
        "gpu-reset-required on 10% over 30 min  5            0.75 [0.30, 0.95]  50 s       15 s               0",
        "",
        "10 normal days: 0.10 false domains a day [0.00, 0.30], 0.50 suppressed checks",
    ]


def test_figures_of_seeds_that_constants_were_chosen_of_are_no_evidence() -> None:
    first, *rest = lines(EvaluationResult(EvaluationPlan(nodes=64), (), (), None, ("NVLink tray",)))
    assert first == (
        "evaluation - 64 nodes, seeds from 1; intervals at 95%; the constants of the diagnosis were chosen with "
        "these seeds: use --seed 10000 or more for evidence"
    )
    assert rest == ["not evaluated, as the fleet has too few domains: NVLink tray; use more --nodes"]
