"""The command bench/evaluate.py, in a process of its own as a reader runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.evaluate import evaluation_plan, parser
from bench.evaluation.evaluate import EvaluationPlan

COMMAND = Path(__file__).parent.parent.parent / "bench" / "evaluate.py"


def evaluate(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, COMMAND, *options], check=False, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], EvaluationPlan(nodes=64, episodes=100, rollout_runs=0, days=100, before=21_600.0, seed=20_000)),
        (
            ["--nodes", "16", "--episodes", "5", "--days", "3", "--before", "10m"],
            EvaluationPlan(nodes=16, episodes=5, rollout_runs=0, days=3, before=600.0, seed=20_000),
        ),
        (
            ["--compare", "--rollouts", "9", "--seed", "7"],
            EvaluationPlan(nodes=64, episodes=100, compares=True, rollout_runs=9, days=100, seed=7),
        ),
    ],
)
def test_every_option_is_obeyed(options: list[str], expected: EvaluationPlan) -> None:
    assert evaluation_plan(parser().parse_args(options)) == expected


@pytest.mark.slow
def test_a_small_fleet_is_evaluated_with_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("defaultMode: observe\n")
    size = ("--nodes", "16", "--episodes", "1", "--days", "0", "--jobs", "1")
    result = evaluate(*size, "--policy", str(tmp_path / "policy.yaml"))
    assert result.stdout.startswith("evaluation - 16 nodes, seeds from 20000; ")
    assert "\nleaf dead  " in result.stdout
    assert "leaf dead: 1 episode\n" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nodes", "15"], "'15' is out of range: expected 16 to 100000"),
        (["--days", "0.5"], "'0.5' is not a whole number"),
        (["--policy", "/nowhere/policy.yaml"], "/nowhere/policy.yaml"),
    ],
)
def test_invalid_options_are_refused(options: list[str], message: str) -> None:
    result = evaluate(*options)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr
