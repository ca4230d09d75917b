"""Privacy rules of a recording: which files, kernel log records and mount options it omits or masks.

Mount options may have passwords; only the option ro is kept. Devices and paths may have names of users,
projects and servers, which anonymisation replaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

_TABLE = re.compile(r"/etc/fstab|/proc/(?:[^/]+/)?mounts")
_OCTAL = re.compile(r"\\([0-7]{3})")
_SPECIAL = re.compile(r"[\s\\#]")
# user:password@ of a share's address.
_SECRET = re.compile(r"(//[^/@:\s]+):[^/@\s]*@")
_MASKED_LOGIN = r"\1:<masked>@"

# Words of devices and paths that identify no one: kernel names of disks, directories of the standard
# hierarchy and of container runtimes, and common names of disks.
_STANDARD = re.compile(
    r"nvme\d+(?:n\d+)?(?:p\d+)?|(?:sd|vd|xvd|hd)[a-z]{1,2}\d*|(?:md|dm-|loop|sr|zram|pmem|ram|nbd)\d*|mmcblk\d+(?:p\d+)?"
    r"|dev|mapper|disk|by-(?:id|uuid|label|path|partuuid|partlabel)|UUID|LABEL|PARTUUID|PARTLABEL|shm|pts|mqueue"
    r"|hugepages\S*|proc|sys|self|run|user|lock|boot|efi|etc|fstab|hosts|hostname|resolv\.conf|usr|bin|sbin|lib\d*"
    r"|var|log|cache|spool|tmp|opt|local|share|home|root|srv|mnt|media|export|exports|nfs\d?|cifs|lustre|beegfs|gpfs"
    r"|weka|ceph|s3|fs|(?:local_|local-)?(?:data|disk|disks|raid|scratch|ssd|ssds|storage|backup|models|work|docker)\d*"
    r"|stateful_partition|snap|core\d*|microk8s|common|containerd|containers|docker|overlay2?|kubelet|kubernetes"
    r"|k3s|rke2|rancher|agent|pods?|plugins|volumes|rootfs|fuse|lxcfs|io\.\S+|kubernetes\.io~\S+|o2ib\d*|tcp\d*|kfi\d*"
    r"|none|tmpfs|ramfs|devtmpfs|udev|devpts|sysfs|cgroup2?|securityfs|debugfs|tracefs|configfs|pstore|bpf|efivarfs"
    r"|overlay|systemd-1|binfmt_misc|hugetlbfs|mqueue|fusectl|rpc_pipefs|sunrpc|nsfs|autofs|squashfs|swap|http|https"
    r"|nvidia|driver|firmware|gpu|kernel|kubepods(?:-burstable|-besteffort)?(?:-pod)?(?:\.slice)?|burstable|besteffort"
    r"|(?:system|user|machine|runtime)\.slice|slurm|\d{1,3}"
)
_WORD = re.compile(r"[^/:@=,\s]+")


def is_mount_table(path: str) -> bool:
    """Return whether a file of the machine is a mount table."""
    return _TABLE.fullmatch(path) is not None


def public_mounts(text: str) -> str:
    """Return a mount table with only the options `ro` or `rw`, without comments."""
    return "".join(
        f"{_SECRET.sub(_MASKED_LOGIN, device)} {path} {kind} {mode} 0 0\n" if kind else "?\n"
        for device, path, kind, mode in _lines(text)
    )


def anonymous_mounts(text: str, replace: Callable[[str], str]) -> str:
    """Return a table of public_mounts with each word replaced that may identify someone."""

    def replaced(field: str) -> str:
        return _escaped(anonymous_path(_unescaped(field), replace))

    return "".join(
        f"{replaced(device)} {replaced(path)} {kind} {mode} 0 0\n" if kind else "?\n"
        for device, path, kind, mode in _lines(text)
    )


def anonymous_swaps(text: str, replace: Callable[[str], str]) -> str:
    """Return /proc/swaps with the words of its devices and files replaced that may identify someone."""

    def replaced(line: str) -> str:
        device, separator, rest = line.partition(" ")
        if not device.startswith("/"):
            return line
        return _escaped(anonymous_path(_unescaped(device), replace)) + separator + rest

    return "".join(replaced(line) for line in text.splitlines(keepends=True))


def anonymous_path(path: str, replace: Callable[[str], str]) -> str:
    """Return the device or path of a mount with every non-standard word replaced."""
    return _WORD.sub(lambda match: match[0] if _STANDARD.fullmatch(match[0]) else replace(match[0]), path)


def _lines(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield device, path, type and mode of each line; all empty for an invalid line."""
    for line in text.splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < 3:
            yield "", "", "", ""
            continue
        mode = "ro" if "ro" in "".join(fields[3:4]).split(",") else "rw"
        yield fields[0], fields[1], fields[2], mode


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _escaped(field: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{ord(match[0]):03o}", field)


# /proc/PID/…, /proc/PID/task/TID/… and the kernel's own command line. A read of them can also block on a
# stuck process (Linux fs/proc/base.c takes the process's memory lock).
_PRIVATE_FILE = re.compile(r"/proc/(?:cmdline|(?:[^/]+/)+(?:cmdline|environ|maps|smaps|auxv))")
_AUDIT = re.compile(r"audit:|type=\d+ audit\(")
_COMMAND_LINE = re.compile(r"command line\b", re.IGNORECASE)
# Linux init/main.c prints the first process's arguments and environment, one record each, after these heads.
_INIT_HEAD = re.compile(r"\s*with (?:arguments|environment):")
_INIT_ITEM = "    "
# NVRM: Xid (PCI:0000:3b:00): 48, pid=91237, name=python3, Ch 00000010
_PROCESS_NAME = re.compile(r"(\bpid=[^,;\n]*, *name=)(?:(?!\\x0a)[^,\n])*")
# NVRM: API mismatch: the client 'nvidia-smi' (pid 1234)
_CLIENT_NAME = re.compile(r"(\bthe client )'?[^\n]*?'?(?= \(pid )")
_MASKED = r"\1<masked>"


def is_private(path: str) -> bool:
    """Return whether a file of the machine must never be recorded."""
    return _PRIVATE_FILE.fullmatch(path) is not None


def public_records(records: Iterable[str]) -> Iterator[str]:
    """Yield the kernel log records that may be recorded, with process names in driver messages masked.

    Left out are records of other facilities than the kernel's, audit records, command lines and environments.
    records: in the form of /dev/kmsg, in their order.
    """
    of_init = False
    for record in records:
        head, _, text = record.partition(";")
        prefix = head.partition(",")[0]
        if not (prefix.isascii() and prefix.isdigit()) or int(prefix) >> 3 != 0:
            continue
        of_init = _INIT_HEAD.match(text) is not None or (of_init and text.startswith(_INIT_ITEM))
        if of_init or _AUDIT.match(text) or _COMMAND_LINE.search(text):
            continue
        yield _CLIENT_NAME.sub(_MASKED, _PROCESS_NAME.sub(_MASKED, record))
