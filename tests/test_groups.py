"""Tests of a group run in the same process: an installed pytest-xdist may not support the installed pytest.

They are distributed as pytest-xdist does it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from xdist.scheduler import LoadGroupScheduling

from tests.scheduling import GroupScheduling, Positions
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


def test_as_many_tests_wait_as_pytest_xdist_counts() -> None:
    ours, theirs = GroupScheduling.__new__(GroupScheduling), LoadGroupScheduling.__new__(LoadGroupScheduling)
    groups = {"a": ["a1"], "b": ["b1", "b2", "b3"], "c": ["c1"], "d": ["d1", "d2"]}
    workload = {name: dict.fromkeys(tests, False) for name, tests in groups.items()}
    order = [(name, test) for name, tests in groups.items() for test in tests]
    counts = []
    for name, test in order:
        counts.append((ours._pending_of(workload), theirs._pending_of(workload)))
        workload[name][test] = True
    assert counts == [(left, left) for left in range(len(order), 0, -1)]
    assert (ours._pending_of(workload), ours._pending_of({})) == (0, 0)


def test_positions_are_those_of_a_list() -> None:
    names = ["b", "a", "c"]
    assert [Positions(names).index(name) for name in names] == [0, 1, 2]
    assert Positions(names) == names
