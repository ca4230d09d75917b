"""Tools of the selected tests, fetched or built before the run: Prometheus, Chromium, Slurm, zsh, and the control plane.

`python -m tests.tools [ARGUMENT…]` takes the arguments of pytest. Where a tool is missing, it collects the tests and
gets the tool only if a selected test has its mark. The control plane takes 10 to 20 minutes, once; the kubelet a few
minutes more if it is built with it.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.controlplane.programs import KUBELET, KUBERNETES, KUEUE, OWNERS, Part

ROOT = Path(__file__).parent.parent

# What tests of a mark need: commands that the distribution has, and parts that are built from source.
PACKAGED: Mapping[str, Sequence[str]] = {
    "promtool": ("promtool", "prometheus-alertmanager"),
    "browser": ("chromium",),
    "shells": ("zsh",),
    "slurm": ("slurmctld", "slurmd", "munged", "scontrol"),
    "namespaces": ("ip", "curl"),
    "kubelet": ("buildah", "containerd", "runc", "debootstrap", "ip"),
}
BUILT: Mapping[str, Sequence[Part]] = {
    "cluster": (KUBERNETES, KUEUE, OWNERS),
    "kubelet": (KUBERNETES, KUBELET),
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


def missing() -> set[str]:
    """Return the marks of tests that need a tool which this machine lacks."""
    packaged = {mark for mark, commands in PACKAGED.items() if not all(map(shutil.which, commands))}
    return packaged | {
        mark for mark, parts in BUILT.items() if not all(part.directory().is_dir() for part in parts)
    }


def commands(marks: Collection[str]) -> list[list[str]]:
    """Return the commands that get the tools of tests with these marks.

    All parts are built by one command, since they share what Go compiles.
    """
    packages = [mark for mark in PACKAGED if mark in marks]
    parts = dict.fromkeys(part.name for mark in BUILT if mark in marks for part in BUILT[mark])
    return [
        *([["scripts/environment", *packages]] if packages else []),
        *([["scripts/controlplane", *parts]] if parts else []),
    ]


def main(arguments: Sequence[str]) -> int:
    """Get the missing tools of the selected tests. Return the exit code of the first command that fails, else 0."""
    lacking = missing()
    needed = lacking & selected(arguments) if lacking else set()
    for command in commands(needed):
        if code := subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
