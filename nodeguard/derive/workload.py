"""The workload of a process, from the path of its control group. Pure.

Sources: Kubernetes pkg/kubelet/cm (pod cgroups of both drivers), Slurm's cgroup plugins, and the cgroup
drivers of Docker, containerd, CRI-O and Podman.
"""

from __future__ import annotations

import re

# The UID of a pod: with dashes, or with underscores in the slices of systemd.
_POD = re.compile(r"\bpod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b")
_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)")
_UNIT = re.compile(r"/([^/]+)\.service(?:/|$)")


def workload_name(cgroup: str) -> str:
    """Return the workload of a control group: `pod UID`, `job 123`, `container ID`, `service NAME`, or ``."""
    if match := _POD.search(cgroup):
        return f"pod {match[1].replace('_', '-')}"
    for pattern, kind in ((_JOB, "job"), (_CONTAINER, "container"), (_UNIT, "service")):
        if match := pattern.search(cgroup):
            return f"{kind} {match[1]}"
    return ""
