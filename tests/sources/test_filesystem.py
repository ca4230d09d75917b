from __future__ import annotations

import errno
from typing import Any

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.filesystem import FilesystemSource
from nodeguard.worker.result import CallResult, LaneResult
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target

MOUNTS = """/dev/nvme0n1p2 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
/dev/md0 /raid xfs ro,noatime 0 0
nfs-1:/home /home nfs4 rw,hard 0 0
"""
FSTAB = """# <file system> <mount point> <type> <options> <dump> <pass>
UUID=1234 / ext4 defaults 0 1
/dev/md0 /raid/ xfs noatime,nofail 0 2
nfs-1:/home /home nfs4 ro 0 0
"""
SIZES = {
    "f_frsize": 4096,
    "f_blocks": 1000,
    "f_bfree": 300,
    "f_bavail": 250,
    "f_files": 100,
    "f_ffree": 75,
    "f_favail": 75,
    "f_flag": 4096,
}
CALLS = {f"statvfs({path})": SIZES for path in ("/", "/raid", "/home")}


def _machine(calls: dict[str, Any] | None = None, answer: LaneResult | None = None) -> FakeMachine:
    files = {"/proc/self/mounts": MOUNTS, "/etc/fstab": FSTAB}
    return FakeMachine(files, calls={**CALLS, **(calls or {})}, answer=answer)


def test_a_healthy_file_system() -> None:
    observations = by_target(FilesystemSource(), _machine())
    assert observations.keys() == {"fs:/", "fs:/raid", "fs:/home"}
    assert observations["fs:/"].signals == {
        "fs.type": "ext4",
        "fs.device": "/dev/nvme0n1p2",
        "fs.network": False,
        "fs.used_ratio": 700 / 950,
        "fs.free": 250 * 4096,
        "fs.inodes_used_ratio": 0.25,
        "fs.read_only": False,
        "fs.fstab_writable": True,
        "fs.answers": True,
        "fs.hung": False,
        "fs.error": "",
    }
    assert observations["fs:/home"].signals["fs.network"] is True


def test_read_only_by_option_or_by_the_file_system_itself() -> None:
    observations = by_target(FilesystemSource(), _machine({"statvfs(/)": {**SIZES, "f_flag": 4097}}))
    assert observations["fs:/"].signals["fs.read_only"] is True
    assert observations["fs:/raid"].signals["fs.read_only"] is True
    assert observations["fs:/home"].signals["fs.read_only"] is False


def test_mount_options_required_by_fstab() -> None:
    observations = by_target(FilesystemSource(), _machine())
    assert observations["fs:/raid"].signals["fs.fstab_writable"] is True
    assert "fs.fstab_writable" not in observations["fs:/home"].signals


def test_fstab_absent_or_refused() -> None:
    machine = _machine()
    del machine.files["/etc/fstab"]
    assert by_target(FilesystemSource(), machine)["fs:/"].unreadable == {}
    machine.errors["/etc/fstab"] = errno.EACCES
    assert by_target(FilesystemSource(), machine)["fs:/"].unreadable == {
        "fs.fstab_writable": "permission denied: run as root"
    }


def test_file_system_without_blocks_or_inodes_has_no_ratios() -> None:
    nothing = dict.fromkeys(SIZES, 0)
    signals = by_target(FilesystemSource(), _machine({"statvfs(/)": nothing}))["fs:/"].signals
    assert "fs.inodes_used_ratio" not in signals
    assert "fs.used_ratio" not in signals
    assert signals["fs.free"] == 0


@pytest.mark.parametrize("code", ["ESTALE", "EIO", "ENOTCONN"])
def test_statvfs_error_is_a_reading(code: str) -> None:
    observation = by_target(FilesystemSource(), _machine({"statvfs(/home)": {"error": code}}))["fs:/home"]
    assert observation.status == "read"
    assert observation.signals["fs.error"] == code
    assert observation.signals["fs.answers"] is True
    assert observation.signals["fs.hung"] is False
    assert observation.unreadable["fs.free"] == f"statvfs failed ({code})"


@pytest.mark.parametrize("code", ["EACCES", "EPERM"])
def test_permission_error_is_unread_and_no_file_system_error(code: str) -> None:
    observation = by_target(FilesystemSource(), _machine({"statvfs(/home)": {"error": code}}))["fs:/home"]
    assert observation.unreadable["fs.error"] == "permission denied: run as root"
    assert observation.unreadable.keys() == {"fs.error", "fs.used_ratio", "fs.free", "fs.inodes_used_ratio"}


@pytest.mark.parametrize("code", ["ENOENT", "ENOTDIR"])
def test_unmounted_file_system_is_omitted(code: str) -> None:
    observations = by_target(FilesystemSource(), _machine({"statvfs(/home)": {"error": code}}))
    assert observations.keys() == {"fs:/", "fs:/raid"}


@pytest.mark.parametrize(
    "result", [None, [], "full", {}, {**SIZES, "f_bfree": "many"}, {**SIZES, "f_blocks": -1}]
)
def test_invalid_statvfs_result_is_unread(result: Any) -> None:
    answer = LaneResult((CallResult(0, "statvfs(/)", result),))
    observation = by_target(FilesystemSource(), _machine(answer=answer))["fs:/"]
    assert observation.unreadable.keys() == {"fs.used_ratio", "fs.free", "fs.inodes_used_ratio"}
    assert observation.signals["fs.answers"] is True


def test_implausible_free_space_is_unread() -> None:
    observation = by_target(FilesystemSource(), _machine({"statvfs(/)": {**SIZES, "f_bavail": 2**63}}))[
        "fs:/"
    ]
    assert observation.unreadable.keys() == {"fs.free"}


def test_stall_of_a_mount_ends_when_it_is_unmounted() -> None:
    source, machine = (
        FilesystemSource(),
        _machine(answer=LaneResult(stalled=(CallResult(2, "statvfs(/home)"),))),
    )
    by_target(source, machine)
    machine.answer, mounts = LaneResult(), machine.files["/proc/self/mounts"]
    machine.files["/proc/self/mounts"] = mounts.replace("nfs-1:/home /home nfs4 rw,hard 0 0\n", "")
    by_target(source, machine)
    machine.files["/proc/self/mounts"] = mounts
    assert "fs.answers" in by_target(source, machine)["fs:/home"].unreadable


def test_a_stall_lasts_until_the_mount_answers() -> None:
    source = FilesystemSource()
    rest = tuple(CallResult(index, f"statvfs({path})", SIZES) for index, path in ((0, "/"), (1, "/raid")))
    stalled = _machine(answer=LaneResult(rest, stalled=(CallResult(2, "statvfs(/home)"),)))
    skipped = _machine(answer=LaneResult(rest, skipped=(CallResult(2, "statvfs(/home)"),)))
    for machine in (stalled, skipped, skipped):
        observations = by_target(source, machine)
        home = observations["fs:/home"]
        assert (home.status, home.signals["fs.answers"], home.signals["fs.hung"]) == ("hung", False, False)
        assert home.unreadable == {}
        assert observations["fs:/"].status == "read"
    assert by_target(source, _machine())["fs:/home"].signals["fs.answers"] is True
    unasked = _machine(answer=LaneResult(rest))
    assert by_target(source, unasked)["fs:/home"].unreadable["fs.answers"] == "not asked"


def test_hung_mount_makes_the_other_mounts_unread() -> None:
    source = FilesystemSource()
    hung = CallResult(2, "statvfs(/home)")
    first = by_target(source, _machine(answer=LaneResult((CallResult(0, "statvfs(/)", SIZES),), hung=hung)))
    assert first["fs:/"].signals["fs.answers"] is True
    assert (first["fs:/home"].status, first["fs:/home"].signals["fs.hung"]) == ("hung", True)
    assert "statvfs(/home)" in first["fs:/raid"].unreadable["fs.used_ratio"]
    # In later rounds nothing is asked any more, and the mounts may have changed places.
    later = by_target(source, _machine(answer=LaneResult(hung=CallResult(-1, "statvfs(/home)"))))
    assert later["fs:/home"].signals["fs.hung"] is True
    assert later["fs:/"].unreadable.keys() >= {"fs.answers", "fs.hung", "fs.free", "fs.error"}
    assert later["fs:/"].signals["fs.type"] == "ext4"


def test_all_mounts_are_unread_if_the_worker_does_not_start() -> None:
    observations = by_target(
        FilesystemSource(), _machine(answer=LaneResult(failed="the worker did not start"))
    )
    assert observations["fs:/"].unreadable["fs.answers"] == "the worker did not start"


def test_interrupted_reading_keeps_its_observations() -> None:
    late = CallResult(1, "statvfs(/raid)")
    answer = LaneResult((CallResult(0, "statvfs(/)", SIZES),), stalled=(late,), interrupted=late)
    observations = by_target(FilesystemSource(), _machine(answer=answer))
    assert observations["fs:/"].signals["fs.answers"] is True
    assert observations["fs:/raid"].signals["fs.answers"] is False
    assert observations["fs:/home"].unreadable["fs.answers"] == "not asked: statvfs(/raid) used up the time"


def test_invalid_mount_table_fails_and_one_without_disks_is_empty() -> None:
    observation = by_target(FilesystemSource(), FakeMachine({"/proc/self/mounts": "xyz\n"}))[NODE]
    assert (observation.status, observation.detail) == ("failed", "/proc/self/mounts reads 'xyz\\n'")
    assert by_target(FilesystemSource(), FakeMachine({"/proc/self/mounts": "proc /proc proc rw 0 0\n"})) == {}


def test_this_machine() -> None:
    root = by_target(FilesystemSource(), ThisMachine())["fs:/"]
    assert 0 <= float(root.signals["fs.used_ratio"]) <= 1
