"""Bundles and verdicts: each bundle has its reviewed verdict, and every check fires in at least one bundle."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from fixtures import bundles, verdicts
from fixtures.bundles import ROOT, build, bundle_names, bundle_path, scenarios
from fixtures.verdicts import agreed, expected, verdict_text
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.render.first_screen import SCREEN_COLUMNS, SCREEN_ROWS, first_screen
from nodeguard.cli.render.terminal import CHECK, StyledText, view_lines, wrap_lines
from nodeguard.cli.render.verdict import VerdictText, verdict_view
from nodeguard.pipeline.signal_registry import AGENT_SOURCE as OWN

TRACKED = [name for name in bundle_names() if (ROOT / name).is_dir()]


@pytest.mark.parametrize("name", bundle_names())
def test_a_bundle_has_its_expected_verdict_and_prints_it_in_eighty_columns(name: str) -> None:
    text = verdict_text(bundle_path(name))
    assert expected(text.verdict) == agreed(name)
    _, *lines = view_lines(verdict_view(text), CHECK)  # the first is not wrapped
    for row in wrap_lines(lines, 80):
        printed = "".join(part.text for part in row).rstrip()
        assert len(printed) <= 80 or " " not in printed.strip(), printed
    assert_names_what_it_leaves_out(text)


def assert_names_what_it_leaves_out(text: VerdictText) -> None:
    """Fail where the first screen of a verdict is too large, or hides a finding without its number."""
    screen = view_lines(first_screen(text), CHECK)
    assert len(wrap_lines(screen, SCREEN_COLUMNS)) <= SCREEN_ROWS
    lines = ["".join(part.text for part in (*line.head, StyledText(line.text))) for line in screen]
    shown = sum(line.startswith(("FATAL", "SUSPECT", "WARNING")) for line in lines[1:])
    left_out = re.search(r"(\d+) more findings?", lines[-1])
    assert shown + (int(left_out[1]) if left_out else 0) == len(text.verdict.findings)
    assert not text.verdict.findings or any(line.startswith("  see ") for line in lines)
    if any(finding.is_application_error for finding in text.verdict.informational):
        assert any(line.startswith("application") for line in lines)


def test_each_expected_verdict_belongs_to_a_bundle() -> None:
    assert sorted(path.stem for path in (ROOT / "expected").iterdir()) == bundle_names()


@pytest.mark.parametrize("name", [name for name in bundle_names() if name.startswith("healthy-")])
def test_a_healthy_machine_has_no_findings(name: str) -> None:
    verdict = agreed(name)
    assert (verdict["exit"], verdict["findings"], verdict["unreadable"]) == (0, [], [])


def test_every_check_of_the_machine_fires_in_some_bundle() -> None:
    catalogue, _ = load_catalogue()
    verdicts = [agreed(name) for name in bundle_names()]
    fired = {
        finding["check"]
        for verdict in verdicts
        for finding in (*verdict["findings"], *verdict["informational"])
    }
    of_machine = {check.id for check in catalogue.checks if check.family != OWN}
    assert sorted(of_machine - fired) == []


def entries(directory: Path) -> dict[str, bytes | str]:
    """Return the contents of files and the targets of links, by path."""
    return {
        str(path.relative_to(directory)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in directory.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("name", [name for name in TRACKED if name in scenarios()])
def test_a_tracked_bundle_is_what_its_scenario_builds(name: str, tmp_path: Path) -> None:
    build(name).save(tmp_path)
    assert entries(ROOT / name) == entries(tmp_path / name)


def test_the_bundle_of_the_readme_is_tracked() -> None:
    assert "gpu-off-bus" in TRACKED
    assert "nodeguard check --from fixtures/gpu-off-bus" in (ROOT.parent / "README.md").read_text()


def test_a_scenario_imports_the_parts_only() -> None:
    for path in (ROOT / "scenarios").glob("*.py"):
        lines = path.read_text().splitlines()
        imported = {line.split()[1].split(".")[0] for line in lines if line.startswith(("from ", "import "))}
        assert "nodeguard" not in imported, path
        assert not any("fixtures.scenarios" in line for line in lines), path


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="no bundle and no scenario is named gpu-off-bux"):
        bundle_path("gpu-off-bux")


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build bundles in a directory of the test."""
    monkeypatch.setattr(bundles, "GENERATED", tmp_path)
    return tmp_path


def test_a_bundle_is_built_once_and_again_when_its_scenario_changes(
    generated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bundle_path("gpu-hot")
    assert first == generated / "gpu-hot"
    (first / "mark").touch()
    assert (bundle_path("gpu-hot") / "mark").exists()
    monkeypatch.setattr(bundles, "_digest", lambda _: "changed")
    assert not (bundle_path("gpu-hot") / "mark").exists()
    assert sorted(path.name for path in generated.iterdir()) == [".lock", ".stamps", "gpu-hot"]


def test_a_removed_bundle_is_built_again(generated: Path) -> None:
    bundle_path("gpu-hot").rename(generated / "elsewhere")
    assert entries(bundle_path("gpu-hot")) == entries(generated / "elsewhere")


def test_bundles_without_a_scenario_are_pruned(generated: Path) -> None:
    bundle_path("gpu-hot")
    (generated / "was-renamed").mkdir()
    bundles.prune()
    assert sorted(path.name for path in generated.glob("[!.]*")) == ["gpu-hot"]


def test_concurrent_processes_get_a_complete_bundle(generated: Path) -> None:
    build("gpu-hot").save(generated / "reference")
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(_entries_of, ["gpu-hot"] * 24))
    assert all(result == entries(generated / "reference" / "gpu-hot") for result in results)


def _entries_of(name: str) -> dict[str, bytes | str]:
    return entries(bundle_path(name))


def test_an_unknown_name_is_refused_with_the_file_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert write_verdicts(monkeypatch, tmp_path, "gpu-off-bux") == 3
    assert "write fixtures/scenarios/gpu_off_bux.py" in capsys.readouterr().err


def write_verdicts(monkeypatch: pytest.MonkeyPatch, root: Path, *names: str) -> int:
    """Write verdicts into an empty directory. Returns the exit code."""
    (root / "expected").mkdir(exist_ok=True)
    monkeypatch.setattr(verdicts, "ROOT", root)
    monkeypatch.setattr("sys.argv", ["verdicts", *names])
    return verdicts.main()


def test_a_new_verdict_is_written_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviewed = agreed("gpu-gone")
    assert write_verdicts(monkeypatch, tmp_path, "gpu-gone") == 0
    assert agreed("gpu-gone") == reviewed
    printed = capsys.readouterr().out
    assert printed.startswith("gpu-gone: new, `nodeguard check` exits with 2\n  fatal    gpu-count on node")
    # The name of its module is the same scenario.
    assert write_verdicts(monkeypatch, tmp_path, "gpu_gone") == 0
    assert not capsys.readouterr().out


def test_a_new_scenario_in_which_no_check_fires_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_verdicts(monkeypatch, tmp_path, "root-read-only-by-intent") == 1
    assert capsys.readouterr().out.startswith("root-read-only-by-intent: no check fires: ")
    assert not list((tmp_path / "expected").iterdir())


def test_an_invalid_check_is_an_error_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text("family: site\nchecks: [{id: no-such-field, colour: red}]\n")
    monkeypatch.setattr(verdicts, "_catalogue", lambda: load_catalogue([str(tmp_path)]))
    assert write_verdicts(monkeypatch, tmp_path, "gpu-gone") == 3
    assert capsys.readouterr().err.startswith(f"{tmp_path}/site.yaml:2: ")


@pytest.mark.usefixtures("generated")
@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        ("", "fixtures/scenarios/gpu_hot.py: has no function build(): write one that returns the bundle\n"),
        (
            "from fixtures.scenarios.gpu_gone import build",
            "fixtures/scenarios/gpu_hot.py: the bundle is named gpu-gone: name it gpu-hot, as its module\n",
        ),
    ],
)
def test_an_invalid_scenario_is_an_error_without_a_traceback(
    scenario: str,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("fixtures.scenarios.gpu_hot")
    exec(scenario, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert write_verdicts(monkeypatch, tmp_path, "gpu-hot") == 3
    assert capsys.readouterr().err == error
