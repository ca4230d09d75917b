"""What a machine needs to run containers in tests.

`python -m tests.kubelet.machine` prints nothing, or that the tests in pods do not run, with each reason.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def missing_for_pods() -> list[str]:
    """Return what this machine lacks, each with the remedy."""
    if os.geteuid() != 0:
        return [
            "pods, and tests with the mark root, need root: run the tests as root, in a container or a virtual machine"
        ]
    lacking = []
    unshare = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--fork", "--mount-proc", "true"]
    done = subprocess.run(unshare, capture_output=True, text=True, check=False)
    if done.returncode:
        lacking.append(f"namespaces cannot be made ({done.stderr.strip()}): allow CAP_SYS_ADMIN")
    memory = _CGROUPS / "memory"
    hierarchy = memory if memory.is_dir() else _CGROUPS
    if not ((_CGROUPS / "cgroup.controllers").exists() or memory.is_dir()):
        lacking.append("no cgroups: mount them at /sys/fs/cgroup")
    elif not os.access(hierarchy, os.W_OK):
        lacking.append(f"{hierarchy} is read-only: mount it writable")
    if not Path("/dev/kmsg").exists():
        lacking.append("/dev/kmsg is missing: create it, or run the tests in a virtual machine")
    return lacking


def main() -> None:
    """Print which tests this machine cannot run."""
    if lacking := missing_for_pods():
        print("NOT RUN: the tests with images and pods (make test-pods). This machine cannot run pods:")
        print(*(f"  - {reason}" for reason in lacking), sep="\n")


if __name__ == "__main__":
    main()
