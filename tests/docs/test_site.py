"""The site of the documentation: each link leads to a page, and to a section of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


def test_the_build_of_the_makefile_counts_warnings() -> None:
    """With --quiet, mkdocs counts none of them, and a strict build with broken links succeeds."""
    lines = re.findall(r"^.*mkdocs.*--strict.*$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert lines
    assert not [line for line in lines if "quiet" in line]
