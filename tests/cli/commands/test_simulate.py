from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.simulation.rollouts import Rollout
from bench.simulation.rows import FaultRow, NoiseRow, RolloutRow, share
from bench.simulation.table import HELD_OUT, Plan, Table
from nodeguard.cli.main import main
from nodeguard.cli.render.simulate import table_lines

SMALL = ["simulate", "--nodes", "300", "--days", "1", "--gang", "64"]


def test_a_run_is_told_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "out.svg"
    assert main([*SMALL, "--plot", str(drawing)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "simulation - 300 nodes, 1 day, seed 1: nodeguard"
    for name in ("policy", "shared faults", "quarantines", "capacity out", "gangs"):
        assert f"\n{name} " in said
    assert drawing.read_text().startswith("<svg ")


def test_machines_are_told_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--format", "json"]) == 0
    first = capsys.readouterr().out
    assert main([*SMALL, "--format", "json"]) == 0
    assert capsys.readouterr().out == first
    told = json.loads(first)
    assert told["settings"] == {"nodes": 300, "days": 1.0, "seed": 1, "baseline": "nodeguard", "gang": 64}


def test_a_policy_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.yaml").write_text("defaultMode: observe\n")
    assert main([*SMALL, "--policy", str(tmp_path / "policy.yaml")]) == 0
    said = capsys.readouterr().out
    assert "observes: nothing is marked" in said
    assert "quarantines   0;" in said


def test_a_simpler_rule_is_told_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--baseline", "cordon-any"]) == 0
    said = capsys.readouterr().out
    assert "rule cordon-any" in said
    assert "policy" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "0"], "'0' is no number that can be simulated"),
        (["--days", "-1"], "'-1' is no number of days"),
        (["--table", "--baseline", "cordon-any"], "leave --baseline and --plot out"),
        (["--table", "--nodes", "500"], "--table wants 1100 nodes at least"),
        (["--held-out"], "--held-out is about the table"),
        (["--policy", "/nowhere/policy.yaml"], "/nowhere/policy.yaml"),
        (
            ["--nodes", "20", "--days", "0.01", "--plot", "/nowhere/x.svg"],
            "--plot /nowhere/x.svg: No such file",
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["simulate", *options])
    except SystemExit as error:
        code = error.code
    assert code == 3
    assert said in capsys.readouterr().err


def test_the_table_has_a_line_for_each_kind() -> None:
    fault = FaultRow("leaf dead", share(9, 10), share(0, 0), 20.0, None, 24.4, 0.0, 0)
    rollout = RolloutRow(Rollout("gpu-reset-required", 0.1, 1800.0), 4, 5, 3, 50.0, 0)
    noise = NoiseRow(10.0, 0.1, 0.0, 0.3, 3.2, 0.5)
    lines = list(table_lines(Table(Plan(first=HELD_OUT), (fault,), (rollout,), noise)))
    assert "held-out seeds, from 10000 on" in lines[0]
    assert lines[3].split("  ")[:2] == ["leaf dead", "0.90 [0.60, 0.98]"]
    assert "20 s / -" in lines[3]
    assert "24.4 -> 0.0" in lines[3]
    assert lines[6].startswith("gpu-reset-required on 10% over 30 min  5")
    assert "0.10 false domains a day [0.00, 0.30]" in lines[8]
