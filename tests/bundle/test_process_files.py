from __future__ import annotations

import pytest

from nodeguard.bundle.process_files import opaque_owner, real_user
from nodeguard.model.control_group import job_path

UID = "0a1b2c3d_1111_4c3d_8e5f_60718293041a"
CONTAINER = "ab" * 32
POD = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID}.slice/cri-containerd-{CONTAINER}.scope\n"


def test_real_user_is_the_first_of_the_four() -> None:
    assert real_user("Name:\tUid: 7\nUid:\t1000\t1001\t1002\t1003\n") == "1000"
    assert real_user("Name:\tx\n") == ""


def test_opaque_files_keep_only_whether_owners_are_equal() -> None:
    salt = b"salt"
    status = opaque_owner("/proc/7/status", "Name:\talice\nUid:\t1000\t0\t0\t0\n", salt)
    assert status is not None
    assert "alice" not in status
    assert "1000" not in status
    assert status == opaque_owner("/proc/9/status", "Name:\tbob\nUid:\t1000\t0\t0\t0\n", salt)
    assert status != opaque_owner("/proc/9/status", "Name:\tbob\nUid:\t1000\t0\t0\t0\n", b"other")
    assert real_user(status) not in {"", "1000"}
    cgroup = opaque_owner("/proc/7/cgroup", POD, salt)
    assert cgroup is not None
    assert UID not in cgroup
    assert CONTAINER not in cgroup
    assert job_path(cgroup)
    restarted = POD.replace(CONTAINER, "cd" * 32)
    assert cgroup == opaque_owner("/proc/8/cgroup", restarted, salt)


def test_opaque_stat_has_the_start_and_no_name_or_address() -> None:
    text = f"7 (a) (b) S 1 {'2 ' * 17}4711 170000 3328 140000000 {'0 ' * 26}\n"
    assert opaque_owner("/proc/7/task/7/stat", text, b"") == f"7 (masked) S 1 {'2 ' * 17}4711\n"


@pytest.mark.parametrize("path", ["/proc/7/stat", "/proc/1/comm", "/sys/fs/cgroup/x", "/proc/self/mounts"])
def test_other_files_stay(path: str) -> None:
    assert opaque_owner(path, "text", b"salt") is None
