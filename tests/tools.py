"""Tools of the selected tests, fetched or built before the run: Prometheus, Chromium, and the control plane.

`python -m tests.tools [ARGUMENT…]` takes the arguments of pytest. Where a tool is missing, it collects the tests and
gets the tool only if a selected test has its mark. The control plane takes 10 to 20 minutes, once.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.controlplane.programs import directory

ROOT = Path(__file__).parent.parent

# Command that gets a tool, by the mark of the tests that need it.
COMMANDS: Mapping[str, Sequence[str]] = {
    "promtool": ("scripts/environment", "promtool"),
    "cluster": ("scripts/controlplane",),
    "browser": ("scripts/environment", "browser"),
}


class _Selection:
    """The marks of the selected tests, as a plug-in of pytest."""

    def __init__(self) -> None:
        self.marks: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.marks.update(mark.name for item in session.items for mark in item.iter_markers())


def selected(arguments: Sequence[str]) -> set[str]:
    """Return the marks of the tests that these arguments of pytest select."""
    selection = _Selection()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *arguments], plugins=[selection])
    return selection.marks


def missing() -> list[str]:
    """Return the marks of tests that need a tool which this machine lacks."""
    present = {
        "promtool": all(map(shutil.which, ("promtool", "prometheus-alertmanager"))),
        "cluster": directory().is_dir(),
        "browser": shutil.which("chromium") is not None,
    }
    return [mark for mark in COMMANDS if not present[mark]]


def main(arguments: Sequence[str]) -> int:
    """Get the missing tools of the selected tests. Return the exit code of the first command that fails, else 0."""
    lacking = missing()
    needed = selected(arguments) if lacking else set()
    for mark in lacking:
        if mark in needed and (
            code := subprocess.run(
                COMMANDS[mark], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
            ).returncode
        ):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
