from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.sources.mounts import mounts_to_check, parse_mounts, unescape

# A node with local and network storage, a container runtime, and all that is mounted for show.
MOUNTS = r"""sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
udev /dev devtmpfs rw,nosuid,relatime,size=1056728392k 0 0
tmpfs /run tmpfs rw,nosuid,nodev,size=211345676k,mode=755 0 0
/dev/nvme0n1p2 / ext4 rw,relatime,errors=remount-ro 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0
tmpfs /run/user/1000 tmpfs rw,nosuid,nodev,relatime 0 0
/dev/loop0 /snap/core22/1380 squashfs ro,nodev,relatime 0 0
/dev/nvme0n1p1 /boot/efi vfat rw,relatime,fmask=0022 0 0
/dev/md0 /raid xfs rw,noatime 0 0
/dev/md0 /var/lib/containerd xfs rw,noatime 0 0
systemd-1 /mnt/home autofs rw,relatime,fd=60 0 0
nfs-1:/home /mnt/home nfs4 rw,relatime,vers=4.2,hard 0 0
nfs-1:/home /srv/home-again nfs4 rw,relatime 0 0
10.1.2.3@o2ib:/scratch /scratch lustre rw,flock 0 0
juicefs:models /models fuse.juicefs rw,relatime,user_id=0 0 0
mountpoint-s3 /s3/a fuse rw,nosuid 0 0
mountpoint-s3 /s3/b fuse rw,nosuid 0 0
lxcfs /var/lib/lxcfs fuse.lxcfs rw,nosuid 0 0
/dev/sdb1 /mnt/my\040disk ext4 ro,relatime 0 0
overlay /run/containerd/io.containerd.runtime.v2.task/k8s.io/1/rootfs overlay rw,lowerdir=/a 0 0
overlay /var/lib/docker/overlay2/1/merged overlay rw 0 0
tmpfs /var/lib/kubelet/pods/1/volumes/kubernetes.io~projected/token tmpfs rw 0 0
/dev/sdc /var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount ext4 rw 0 0
"""


def test_mounts_to_check_of_a_mount_table() -> None:
    assert [mount.path for mount in mounts_to_check(MOUNTS)] == [
        "/",
        "/boot/efi",
        "/dev/shm",
        "/mnt/my disk",
        "/raid",
        "/run",
        "/mnt/home",
        "/models",
        "/s3/a",
        "/s3/b",
        "/scratch",
    ]


def test_local_mounts_come_first() -> None:
    network = [mount.is_network for mount in mounts_to_check(MOUNTS)]
    assert network == sorted(network)


def test_the_root_of_a_container() -> None:
    text = "overlay / overlay rw 0 0\n/dev/vda1 /etc/hosts ext4 rw 0 0\n/dev/vda1 /etc/hostname ext4 rw 0 0\n"
    assert [mount.path for mount in mounts_to_check(text)] == ["/", "/etc/hosts"]


def test_mount_is_hidden_by_a_later_one_on_the_same_path() -> None:
    text = "/dev/sda1 /data xfs rw 0 0\nnfs-1:/data /data nfs4 ro 0 0\n"
    (mount,) = mounts_to_check(text)
    assert (mount.device, mount.is_network, mount.read_only) == ("nfs-1:/data", True, True)


def test_mount_on_a_parent_hides_the_mounts_below() -> None:
    text = "/dev/sda1 /data/a xfs rw 0 0\n/dev/sdb1 /data2 xfs rw 0 0\nnfs-1:/data /data nfs4 rw 0 0\n"
    assert [mount.path for mount in mounts_to_check(text)] == ["/data2", "/data"]
    expected = ["/", "/data2", "/data"]
    assert [mount.path for mount in mounts_to_check(f"{text}/dev/sdc1 / ext4 rw 0 0\n")] == expected


def test_options() -> None:
    text = "a /a ext4 rw,errors=remount-ro 0 0\nb /b ext4 noatime,ro 0 0\nc /c ext4\n"
    assert [mount.read_only for mount in parse_mounts(text)] == [False, True, False]


def test_invalid_lines_of_the_mount_table_are_skipped() -> None:
    assert list(parse_mounts("# /dev/sda1 /data xfs\n\nxyz\n/dev/sda1 /data\n")) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (r"/mnt/my\040disk", "/mnt/my disk"),
        (r"a\011b\012c\134d", "a\tb\nc\\d"),
        ("\\", "\\"),
        (r"a\9b", r"a\9b"),
    ],
)
def test_octal_escapes(text: str, path: str) -> None:
    assert unescape(text) == path


@given(st.text())
def test_escaped_paths_are_decoded(path: str) -> None:
    escaped = "".join(f"\\{ord(letter):03o}" if letter in " \t\n\\" else letter for letter in path)
    assert unescape(escaped) == path


@given(st.text("/ax \\04\n#", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    paths = [mount.path for mount in mounts_to_check(text)]
    assert len(paths) == len(set(paths))
