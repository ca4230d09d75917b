"""The workload of a process, from its control group: a name for people, and the identity of its job. Pure.

Sources: Kubernetes pkg/kubelet/cm (pod cgroups of both drivers), Slurm's cgroup plugins, and the cgroup
drivers of Docker, containerd, CRI-O and Podman.
"""

from __future__ import annotations

import re

# The UID of a pod: with dashes, with underscores in the slices of systemd, with neither for a static pod.
_POD = re.compile(r"\bpod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?(?:/|$)")
_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)")
_UNIT = re.compile(r"/([^/]+)\.service(?:/|$)")


def workload_name(path: str) -> str:
    """Return the workload of a control group: `pod UID`, `job 123`, `container ID`, `service NAME`, or ``."""
    if match := _POD.search(path):
        return f"pod {match[1].replace('_', '-')}"
    for pattern, kind in ((_JOB, "job"), (_CONTAINER, "container"), (_UNIT, "service")):
        if match := pattern.search(path):
            return f"{kind} {match[1]}"
    return ""


def job_path(cgroup: str) -> str:
    """Return what identifies a job in the text of /proc/PID/cgroup; empty if there is nothing.

    It is the pod, the job of Slurm or the container, without what is below it, else the whole path. So a
    container of a pod that is started again stays the same job, although its own id is new.
    """
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if line.count(":") >= 2]
    # With version 1 each controller has a path, and some have only the root.
    path = max(paths, key=lambda path: path.strip("/").count("/"), default="")
    if pod := _POD.search(path):
        return f"pod{pod[1].replace('_', '-')}"
    ends = [match.end() for pattern in (_JOB, _CONTAINER) if (match := pattern.search(path))]
    return path[: min(ends, default=None)].strip("/")
