"""nodeguard check with check files of the site."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main
from nodeguard.cli.render.verdict_json import CheckOutput
from tests.paths import ROOT

LOST = str(bundle_path("gpu-off-bus"))


def test_the_documented_site_file_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "tasks" / "write-a-check.md").read_text()
    (tmp_path / "site.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    assert main(["checks", "--checks", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "gpu-warm-here" in printed
    assert f"disabledby{tmp_path}/site.yaml" in "".join(printed.split())


@pytest.mark.parametrize("variable", [True, False])
def test_only_folders_of_the_command_line_are_in_the_command_that_explains(
    variable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text("family: site\ndisable: [memory-low]\n")
    options = () if variable else ("--checks", str(tmp_path))
    if variable:
        monkeypatch.setenv("NODEGUARD_CHECKS", str(tmp_path))
    main(["check", "--from", LOST, *options])
    explained = "".join(capsys.readouterr().out.split())
    assert "nodeguardexplaingpu-lost" in explained
    assert (f"--checks{tmp_path}" in explained) == (not variable)


def test_a_site_check_fires_and_a_disabled_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(
        "family: site\ndisable: [gpu-lost]\nchecks:\n- {id: site-hot, title: Hot, target: gpu, health: warning, action: monitor, "
        "when: {signal: gpu.temperature, at_least: 60}, message: hot, remedy: Cool it., description: Hot., source: Ours.}\n"
    )
    main(["check", "--from", LOST, "--checks", str(tmp_path), "-o", "json"])
    matches = msgspec.json.decode(capsys.readouterr().out, type=CheckOutput)
    assert {"site-hot"} <= {item.check for item in matches.findings}
    assert "gpu-lost" not in {item.check for item in matches.findings}
