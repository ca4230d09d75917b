"""Files of /proc that name the owner of a process, and their form in a recording: opaque, without any name.

Equal owners stay equal in one recording: a reader only compares them.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_FILE = re.compile(r"/proc/\d+/(?:(status)|(cgroup)|task/\d+/(stat))")
_UID = re.compile(r"^Uid:\s*(\S+)", re.MULTILINE)
# The fields of /proc/PID/stat up to the start of the process; behind them are addresses.
_STAT_FIELDS = 20

_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?$")
_SLURM = re.compile(r"job_\d+$")
_CONTAINER = re.compile(r"[0-9a-f]{64}")


def real_user(status: str) -> str:
    """Return the real user id in the text of /proc/PID/status; empty if it has none."""
    uid = _UID.search(status)
    return uid[1] if uid else ""


def job_path(cgroup: str) -> str:
    """Return what identifies a job in the text of /proc/PID/cgroup; empty if there is nothing.

    It is the pod, the job of Slurm or the container, without what is below it, else the whole path. So a
    container of a pod that is started again stays the same job, although its own id is new.
    """
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if line.count(":") >= 2]
    # With version 1 each controller has a path, and some have only the root.
    names = max((path.strip("/").split("/") for path in paths), key=len, default=[])
    for name in names:
        if pod := _POD.search(name):
            return f"pod{pod[1].replace('_', '-')}"
    for count, name in enumerate(names, 1):
        if _SLURM.match(name) or _CONTAINER.search(name):
            return "/".join(names[:count])
    return "/".join(names)


def opaque_owner(path: str, text: str, salt: bytes) -> str | None:
    """Return the text of a file as a recording may hold it; None for a file that names no owner.

    salt: of the recording, at most 64 bytes; stored nowhere.
    """
    match = _FILE.fullmatch(path)
    if match is None:
        return None
    if match[1]:
        return f"Uid:\t{opaque_key(real_user(text), salt)}\n"
    if match[2]:
        return f"0::/{opaque_key(job_path(text), salt)}\n"
    head, _, tail = text.rpartition(")")
    pid = head.partition(" (")[0]
    return f"{pid} (masked) {' '.join(tail.split()[:_STAT_FIELDS])}\n"


def opaque_key(text: str, salt: bytes) -> str:
    """Return a key that is equal for equal texts and does not reveal them without the salt."""
    return blake2b(text.encode(errors="replace"), digest_size=4, key=salt).hexdigest()
