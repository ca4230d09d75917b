"""nodeguard checks."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.main import main
from nodeguard.model.check import Check
from tests.paths import ROOT


def test_it_lists_every_check_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checks", "--family", "clock"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "clock"
    written = (ROOT / "checks" / "clock.yaml").read_text().count("\n  - id: ")
    assert lines[-1] == f"{written} checks in 1 family"


def test_json_has_all_fields_of_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checks", "-o", "json"]) == 0
    checks = msgspec.json.decode(capsys.readouterr().out, type=list[Check])
    assert len(checks) >= 100
    assert len({check.family for check in checks}) >= 12


def test_markdown_is_a_page_with_an_anchor_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checks", "-o", "markdown"]) == 0
    printed = capsys.readouterr().out
    ids = {check.id for check in load_catalogue()[0].checks}
    assert set(re.findall(r"^### (.+)$", printed, re.MULTILINE)) == ids


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("checks:\n- id: x\n", "site.yaml:2: title: is missing: add it"),
        ("disable: [no-such]\n", "site.yaml:1: disable: 'no-such' is no check: see `nodeguard checks`"),
        ("check: []\n", "site.yaml:1: check: "),
        ("a: &x 1\n", "site.yaml:1: a: has an anchor, alias or tag: write the value out"),
        ("a: [\n", "site.yaml:2: "),
    ],
)
def test_an_invalid_site_file_is_refused_with_file_line_field_and_remedy(
    text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(text)
    assert main(["checks", "--checks", str(tmp_path)]) == 3
    printed = capsys.readouterr().err
    assert f"{tmp_path}/{error}" in printed
    assert printed.count("\n") == 1


def test_all_errors_of_all_files_are_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("checks:\n- id: x\n- id: 1\nfamily: []\n")
    assert main(["checks", "--checks", str(tmp_path)]) == 3
    assert [line.rsplit(": ", 2)[0] for line in capsys.readouterr().err.splitlines()] == [
        f"nodeguard checks: {tmp_path}/{name}.yaml:{error}"
        for name in ("a", "b")
        for error in ("2: title", "3: id", "4: family")
    ]
