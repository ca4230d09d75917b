from __future__ import annotations

import pytest

from nodeguard.model.control_group import job_path, workload_name

UID, CONTAINER = "1f0c2a34-5b6c-7d8e-9f01-23456789abcd", "ab" * 32
STATIC = "0123456789abcdef" * 2
POD = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope\n"
SLURM = "0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_3\n"
DOCKER = f"12:devices:/docker/{CONTAINER}\n11:memory:/docker/{CONTAINER}\n0::/\n"


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        (f"/kubepods/burstable/pod{UID}/{CONTAINER}", f"pod {UID}"),
        (
            f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
            f"pod {UID}",
        ),
        (f"/kubepods/burstable/pod{STATIC}/{CONTAINER}", f"pod {STATIC}"),
        (f"/system.slice/containerd.service/kubepods:cri-containerd:{CONTAINER}", "container abababababab"),
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


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        (POD, f"pod{UID}"),
        (POD.replace(CONTAINER, "cd" * 32), f"pod{UID}"),
        (
            f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}\n",
            f"pod{UID}",
        ),
        (f"0::/../../kubepods.slice/kubepods-pod{STATIC}.slice/x.scope\n", f"pod{STATIC}"),
        (SLURM, "system.slice/slurmstepd.scope/job_4242"),
        ("4:memory:/slurm/uid_1000/job_7/step_batch\n", "slurm/uid_1000/job_7"),
        (DOCKER, f"docker/{CONTAINER}"),
        (f"0::/system.slice/docker-{CONTAINER}.scope/init\n", f"system.slice/docker-{CONTAINER}.scope"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "user.slice/user-1000.slice/session-3.scope"),
        ("0::/\n", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_job_is_the_pod_job_or_container_without_what_is_below(cgroup: str, job: str) -> None:
    assert job_path(cgroup) == job
