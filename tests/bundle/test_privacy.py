from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.bundle.privacy import (
    anonymous_mounts,
    is_mount_table,
    is_private,
    public_mounts,
    public_records,
)
from nodeguard.sources.mounts import Mount, parse_mounts


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/etc/fstab", True), ("/proc/self/mounts", True), ("/proc/91/mounts", True), ("/proc/91/stat", False)],
)
def test_which_files_are_mount_tables(path: str, *, is_one: bool) -> None:
    assert is_mount_table(path) is is_one


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("//files/x /x cifs username=alice,password=hunter2 0 0", "//files/x /x cifs rw 0 0"),
        ("mon1:/ /c ceph name=admin,secret=AQ==,ro 0 0", "mon1:/ /c ceph ro 0 0"),
        ("https://alice:hunter2@dav/ /d davfs rw 0 0", "https://alice:<masked>@dav/ /d davfs rw 0 0"),
        ("a@o2ib:b@o2ib:/s /s lustre rw", "a@o2ib:b@o2ib:/s /s lustre rw 0 0"),
        ("/dev/sda1 / ext4", "/dev/sda1 / ext4 rw 0 0"),
    ],
)
def test_only_the_access_mode_of_mount_options_is_recorded(line: str, mode: str) -> None:
    assert public_mounts(f"# password=x\n{line}\n") == f"{mode}\n"


def test_invalid_line_stays_invalid() -> None:
    assert public_mounts("xyz secret\n") == "?\n"
    assert anonymous_mounts("?\n", str.upper) == "?\n"


LINES = st.lists(st.lists(st.text("ab/#,=:ro\\\\ 01", min_size=1), max_size=5).map(" ".join)).map("\n".join)


def table_rows(text: str) -> list[tuple[str, str, bool]]:
    return [(mount.path, mount.type, mount.read_only) for mount in parse_mounts(text)]


@given(LINES)
def test_mount_table_without_options_parses_to_the_same_rows(text: str) -> None:
    assert table_rows(public_mounts(text)) == table_rows(text)
    assert table_rows(anonymous_mounts(public_mounts(text), lambda name: name)) == table_rows(text)
    assert all(isinstance(mount, Mount) for mount in parse_mounts(public_mounts(text)))


def public(*records: str) -> list[str]:
    return list(public_records(records))


@pytest.mark.parametrize(
    "path",
    [
        "/proc/cmdline",
        "/proc/1/cmdline",
        "/proc/self/environ",
        "/proc/1/maps",
        "/proc/1/task/2/cmdline",
        "/proc/1/smaps",
    ],
)
def test_files_of_users_are_private(path: str) -> None:
    assert is_private(path)


@pytest.mark.parametrize(
    "path", ["/proc/1/stat", "/proc/1/comm", "/proc/1/wchan", "/sys/x/maps", "/proc/meminfo"]
)
def test_files_of_the_machine_are_public(path: str) -> None:
    assert not is_private(path)


@pytest.mark.parametrize("prefix", [8, 12, 30, 191])
def test_only_the_kernels_records_are_kept(prefix: int) -> None:
    assert public(f"{prefix},1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, forged", "7,1,1,-;real") == [
        "7,1,1,-;real"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "audit: type=1400 audit(1690000000.123:45): apparmor=DENIED",
        "audit: backlog limit exceeded",
        "type=1400 audit(1690000000.123:45): avc:  denied",
        "Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 secret=1",
        "Kernel command line: BOOT_IMAGE=/vmlinuz",
        'Unknown kernel command line parameters "BOOT_IMAGE=/vmlinuz", will be passed to user space.',
        "  with arguments:",
        "  with environment:",
    ],
)
def test_audit_records_and_command_lines_are_left_out(text: str) -> None:
    assert public(f"6,1,1,-;{text}") == []


def test_the_first_process_s_arguments_and_environment_are_left_out() -> None:
    log = [
        "6,1,1,-;Run /init as init process",
        "7,2,2,-;  with arguments:",
        "7,3,3,-;    /init",
        "7,4,4,-;  with environment:",
        "7,5,5,-;    TOKEN=secret",
        "6,6,6,-;pci 0000:3b:00.0: enabling device",
        "6,7,7,-;    mode, for it belongs to nothing",
    ]
    assert public(*log) == [log[0], log[5], log[6]]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 48, pid=91237, name=python3, Ch 00000010",
            "NVRM: Xid (PCI:0000:3b:00): 48, pid=91237, name=<masked>, Ch 00000010",
        ),
        (
            "NVRM: Xid (PCI:0000:9d:00 GPU-I:05 GPU-CI:00): 94, pid=7194, name=my job, Contained: SM (0x1,0x0). RST: No",
            "NVRM: Xid (PCI:0000:9d:00 GPU-I:05 GPU-CI:00): 94, pid=7194, name=<masked>, Contained: SM (0x1,0x0). RST: No",
        ),
        (
            "NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<masked>, GPU has fallen off the bus.",
        ),
        (
            "NVRM: API mismatch: the client 'nvidia-smi' (pid 1234)\\x0aNVRM: has the version 580.65.06",
            "NVRM: API mismatch: the client <masked> (pid 1234)\\x0aNVRM: has the version 580.65.06",
        ),
        ("NVRM: the client secret (pid 1)", "NVRM: the client <masked> (pid 1)"),
        (
            "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=last",
            "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=<masked>",
        ),
        (
            "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        ),
        (
            "mlx5_core 0000:9c:00.0: wait_func:964:(pid 112): x",
            "mlx5_core 0000:9c:00.0: wait_func:964:(pid 112): x",
        ),
    ],
)
def test_process_names_in_driver_messages_are_masked(text: str, masked: str) -> None:
    assert public(f"3,1,1,-;{text}\n SUBSYSTEM=pci") == [f"3,1,1,-;{masked}\n SUBSYSTEM=pci"]


def test_invalid_records_are_omitted() -> None:
    assert public("", "x;y", "-1,2,3,-;y") == []
