"""The policies that the pages print are valid as they are printed, with the tables beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.cli.main import main
from tests.docs.pages import blocks, text

FAILURE_DOMAINS = "docs/concepts/failure-domains.md"

# A block of another file begins with one of these.
_OTHERS = ("image:", "apiVersion:")


@pytest.mark.parametrize(
    "page",
    [
        FAILURE_DOMAINS,
        "docs/concepts/policy.md",
        "docs/tasks/enforce-the-first-check.md",
        "docs/tasks/rehearse-a-fault.md",
    ],
)
def test_each_policy_is_valid(page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [table] = [block for block in blocks(FAILURE_DOMAINS) if block.lines[0].startswith("node,")]
    (tmp_path / "racks.csv").write_text(table.text)
    policies = [
        block for block in blocks(page) if block.language == "yaml" and not block.text.startswith(_OTHERS)
    ]
    assert policies
    for block in policies:
        (tmp_path / "policy.yaml").write_text(block.text)
        assert main(["policy", "check", str(tmp_path / "policy.yaml")]) == 0, capsys.readouterr().err


def test_the_table_has_the_domains_that_the_page_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [table] = [block for block in blocks(FAILURE_DOMAINS) if block.lines[0].startswith("node,")]
    (tmp_path / "racks.csv").write_text(table.text)
    (tmp_path / "policy.yaml").write_text("nodeLocations: racks.csv\n")
    assert main(["policy", "check", str(tmp_path / "policy.yaml")]) == 0
    printed = "1 node by name and 3 patterns: rack 4 domains, power 3 domains"
    assert printed in " ".join(capsys.readouterr().out.split())
    assert f"`{printed}`" in text(FAILURE_DOMAINS)
