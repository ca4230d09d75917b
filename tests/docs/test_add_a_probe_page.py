"""The examples of docs/tasks/add-a-probe.md work as described."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main
from nodeguard.model.instant import parse_rfc3339
from nodeguard.sources.probe_file import parse_probe_file
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "tasks" / "add-a-probe.md").read_text()
BUNDLE = str(bundle_path("probes-claim"))


def block(language: str) -> str:
    """Return the only code block of a language in the page."""
    [code] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(code, str)
    return code


def test_the_probe_file_is_valid() -> None:
    file = parse_probe_file(block("json"), parse_rfc3339("2026-11-01T12:00:30Z"))
    assert not file.defects
    assert [observation.name for observation in file.observations] == ["licence", "copy"]


def test_the_table_names_every_field() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (file|observation) \|", PAGE, re.MULTILINE)
    refused = parse_probe_file('{"x": 1}', 0), parse_probe_file(block("json").replace('"name"', '"x"'), 2e9)
    for file, part in zip(refused, ("file", "observation"), strict=True):
        fields = set(file.defects[0].rpartition("use one of ")[2].split(", "))
        assert {name for name, parent in rows if parent == part} == fields


def test_the_checks_evaluate_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.yaml").write_text(block("yaml"))
    assert main(["check", "--from", BUNDLE, "--checks", str(tmp_path), "-o", "json"]) == 2
    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert "probe-fatal" not in findings
    assert findings["burn-in-failed"]["target"] == "probe/matmul/gpu/0000:3b:00"
    assert findings["copy-slow"]["message"] == "GPU 0000:3b:00, probe copy copies 52.1 GB/s"


def test_a_site_may_trust_every_probe(tmp_path: Path) -> None:
    checks = (ROOT / "checks" / "probes.yaml").read_text()
    head, _, fatal = checks.partition("  - id: probe-fatal")
    (tmp_path / "site.yaml").write_text(
        f"{head.partition('checks:')[0]}checks:\n  - id: probe-fatal{fatal}".replace(
            "health: suspect", "health: fatal"
        )
    )
    assert main(["check", "--from", BUNDLE]) == 1
    assert main(["check", "--from", BUNDLE, "--checks", str(tmp_path)]) == 2
