"""Mount tables, and the choice of mounts that the source `filesystem` checks with statvfs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

_LOCAL = frozenset(
    ("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "vfat", "xfs", "zfs")
)
_SHARES = ("9p", "afs", "ceph", "cifs", "glusterfs", "nfs", "nfs4", "smb3", "virtiofs")
_PARALLEL = ("beegfs", "gpfs", "lustre", "orangefs", "panfs", "wekafs")
_NETWORK = frozenset((*_SHARES, *_PARALLEL))
# FUSE file systems that serve local data. Any other FUSE file system counts as network storage: sites write
# their own clients, so a list of network file systems would never be complete.
_LOCAL_FUSE = ("fuse-overlayfs", "gocryptfs", "gvfsd-fuse", "lxcfs", "mergerfs", "portal", "snapfuse")
_SHARED_MEMORY = frozenset(("/dev/shm", "/run"))  # noqa: S108  (asked how full it is, not written to)
# Below these paths a container runtime or kubelet mounts the file systems of single containers.
_CONTAINER_PATHS = (
    "/run/containerd/",
    "/run/containers/",
    "/run/k3s/",
    "/var/lib/containerd/",
    "/var/lib/containers/",
    "/var/lib/docker/",
    "/var/lib/kubelet/",
    "/var/lib/rancher/",
    "/var/snap/microk8s/",
)


class Mount(Struct, frozen=True):
    """One line of /proc/self/mounts or /etc/fstab, with octal escapes decoded."""

    device: str
    path: str
    type: str
    read_only: bool

    @property
    def is_network(self) -> bool:
        """Return whether another machine serves it."""
        return self.type in _NETWORK or self.type == "fuse" or self.type.startswith("fuse.")


def parse_mounts(text: str) -> Iterator[Mount]:
    """Yield the mounts of a table in its order; skip comments and lines with fewer than three fields."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            device, path = unescape(fields[0]), unescape(fields[1])
            yield Mount(device, path, fields[2], read_only="ro" in "".join(fields[3:4]).split(","))


def mounts_to_check(text: str) -> tuple[Mount, ...]:
    """Return for each device the mount with the shortest path, from the text of /proc/self/mounts.

    Local mounts come first, so that a dead server cannot delay them. A mount hides earlier mounts at its path
    or below, except a mount at the root: processes stay in the root that they have.
    """
    visible: dict[str, Mount] = {}
    for mount in parse_mounts(text):
        below = f"{mount.path.rstrip('/')}/"
        hidden = [path for path in visible if path.startswith(below)] if below != "/" else []
        for path in hidden:
            del visible[path]
        visible[mount.path] = mount
    chosen: dict[str, Mount] = {}
    for mount in sorted(
        filter(_is_checked, visible.values()), key=lambda mount: (len(mount.path), mount.path)
    ):
        # For FUSE and tmpfs the device is only a label, which several mounts can share.
        is_label = mount.type == "tmpfs" or mount.type.startswith("fuse")
        chosen.setdefault(mount.path if is_label else mount.device, mount)
    return tuple(sorted(chosen.values(), key=lambda mount: (mount.is_network, mount.path)))


def unescape(text: str) -> str:
    r"""Decode the octal escapes of a field: `/mnt/my\040disk`. Any other backslash stays."""
    head, *rest = text.split("\\")
    return head + "".join(
        chr(int(part[:3], 8)) + part[3:] if _is_octal(part[:3]) else "\\" + part for part in rest
    )


def _is_octal(digits: str) -> bool:
    return len(digits) == 3 and set(digits) <= set("01234567")


def _is_checked(mount: Mount) -> bool:
    if mount.path.startswith(_CONTAINER_PATHS):
        return False
    if mount.type == "tmpfs":
        return mount.path in _SHARED_MEMORY
    if mount.type == "overlay":
        return mount.path == "/"
    return mount.type in _LOCAL or (mount.is_network and mount.type.removeprefix("fuse.") not in _LOCAL_FUSE)
