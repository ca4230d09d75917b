from __future__ import annotations

import pytest

from nodeguard.derive.workload import workload_name

UID, CONTAINER = "1f0c2a34-5b6c-7d8e-9f01-23456789abcd", "ab" * 32


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        (f"/kubepods/burstable/pod{UID}/{CONTAINER}", f"pod {UID}"),
        (
            f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
            f"pod {UID}",
        ),
        ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", "job 123"),
        ("/slurm/uid_1000/job_42", "job 42"),
        (f"/docker/{CONTAINER}", "container abababababab"),
        (f"/system.slice/docker-{CONTAINER}.scope", "container abababababab"),
        (f"/machine.slice/libpod-{CONTAINER}.scope/container", "container abababababab"),
        ("/system.slice/trainer.service", "service trainer"),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_the_workload_of_a_control_group(cgroup: str, name: str) -> None:
    assert workload_name(cgroup) == name
