from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeguard.cli.main import main

SMALL = ["simulate", "--nodes", "300", "--days", "1"]


def test_text_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SMALL) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[0] == "simulation - 300 nodes, 1 day, seed 1"
    for name in (
        "policy",
        "shared faults",
        "false domains",
        "incidents",
        "quarantines",
        "capacity lost",
        "intervals",
    ):
        assert f"\n{name} " in output


def test_json_is_versioned_and_repeatable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "-o", "json"]) == 0
    first = capsys.readouterr().out
    assert main([*SMALL, "-o", "json"]) == 0
    assert capsys.readouterr().out == first
    result = json.loads(first)
    assert result["version"] == 1
    assert result["settings"] == {"nodes": 300, "days": 1.0, "seed": 1}
    assert {"shared_faults", "correct_quarantines", "justified_capacity_lost"} <= result.keys()


def test_a_policy_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.yaml").write_text("defaultMode: observe\n")
    assert main([*SMALL, "--policy", str(tmp_path / "policy.yaml")]) == 0
    output = capsys.readouterr().out
    assert "observe mode: no marks" in output
    assert "quarantines   0;" in output


def test_a_scenario_shows_the_wanted_outcome_beside_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--scenario", "one-pod"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "one-pod: a leaf of the only pod fails (64 nodes, 1.2 h)",
        "  wanted      degraded: fabric/p0/leaf1; no node quarantined",
        "  outcome     degraded: fabric/p0/leaf1; no node quarantined",
        "  result      as wanted",
        "",
        "1 of 1 as wanted",
    ]
    assert main(["simulate", "--scenario", "one-pod", "--seed", "2", "-o", "json"]) == 0
    [result] = json.loads(capsys.readouterr().out)
    assert (result["version"], result["scenario"], result["seed"], result["as_expected"]) == (
        1, "one-pod", 2, True,
    )  # fmt: skip


def test_a_policy_applies_to_a_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.yaml").write_text("defaultMode: observe\n")
    assert main(["simulate", "--scenario", "bad-batch", "--policy", str(tmp_path / "policy.yaml")]) == 0
    output = capsys.readouterr().out
    assert "no node quarantined" in output
    assert "0 of 1 as wanted" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scenario", "one-pod", "--nodes", "64"], "--nodes: a scenario has its own: omit it"),
        (["--scenario", "one-pod", "--days", "2"], "--days: a scenario has its own: omit it"),
        (["--scenario", "no-pod"], "--scenario: 'no-pod' is invalid: did you mean one-pod or two-pods?"),
        (["--nodes", "0"], "'0' is out of range: expected 1 to 100000"),
        (["--days", "0"], "'0' is invalid: expected a number of days above 0 and up to 365"),
        (["--days", "-1"], "'-1' is invalid: expected a number of days above 0 and up to 365"),
        (["--policy", "/nowhere/policy.yaml"], "/nowhere/policy.yaml"),
    ],
)
def test_invalid_options_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["simulate", *options])
    except SystemExit as error:
        code = error.code
    assert code == 3
    assert message in capsys.readouterr().err
