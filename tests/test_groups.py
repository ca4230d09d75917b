"""Tests of a group run in the same process: an installed pytest-xdist may not support the installed pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE

_FILE = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(8))
def test_member(number):
    pass
"""


def test_tests_of_a_group_run_in_the_same_process(tmp_path: Path) -> None:
    for name in ("test_first.py", "test_second.py"):
        (tmp_path / name).write_text(_FILE)
    options = ["-v", "--color=no", "-p", "xdist", "-n", "2", "--dist", "loadgroup"]
    options += ["-p", "no:cacheprovider", "-c", "/dev/null"]
    directories = [f"--basetemp={tmp_path / 'temporary'}", f"--rootdir={tmp_path}", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *directories],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    processes = re.findall(r"^\[(gw\d)\] .* PASSED ", run.stdout, re.MULTILINE)
    assert len(processes) == 16, run.stdout + run.stderr
    assert len(set(processes)) == 1
