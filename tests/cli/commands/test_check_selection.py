"""nodeguard check with only some of the checks."""

from __future__ import annotations

import re

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main

LOST = str(bundle_path("gpu-off-bus"))


@pytest.mark.parametrize("only", [["--family", "clock,kernel"], ["--family", "clock", "--family", "kernel"]])
def test_family_runs_only_these_checks(only: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--from", LOST, "-v", *only]) == 0
    families = re.findall(r"^passed +(\S+):", capsys.readouterr().out, re.MULTILINE)
    assert families == ["clock", "kernel"]


def test_only_named_checks_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    recording = str(bundle_path("gpu-gone"))
    assert main(["check", "gpu-count", "--from", recording]) == 2
    assert "Fewer GPUs than there should be" in capsys.readouterr().out
    assert main(["check", "gpu-ecc-*", "gpu-lost", "--from", recording]) == 0
    assert capsys.readouterr().out.startswith("OK  gpu-gone passed gpu-ecc-*, gpu-lost.\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gpu-lots"], "no check is named 'gpu-lots': did you mean gpu-lost "),
        (["gpu-lost", "--family", "gpu-memory"], "checks and --family cannot be used together"),
        (["nothing-*"], "no check is named 'nothing-*': see nodeguard get checks"),
    ],
)
def test_a_wrong_selection_is_an_error(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words, "--from", str(bundle_path("gpu-gone"))]) == 3
    assert error in capsys.readouterr().err


def test_a_named_check_that_does_not_apply_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "dimm-uncorrected", "--from", str(bundle_path("gpu-gone"))]) == 3
    assert "dimm-uncorrected does not apply, this machine has no DIMMs" in capsys.readouterr().out
