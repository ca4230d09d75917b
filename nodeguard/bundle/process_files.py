"""Files of /proc that name the owner of a process, and their form in a recording: opaque, without any name.

Equal owners stay equal in one recording: a reader only compares them.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from nodeguard.model.control_group import job_path

_FILE = re.compile(r"/proc/\d+/(?:(status)|(cgroup)|task/\d+/(stat))")
_UID = re.compile(r"^Uid:\s*(\S+)", re.MULTILINE)
# The fields of /proc/PID/stat up to the start of the process; behind them are addresses.
_STAT_FIELDS = 20


def real_user(status: str) -> str:
    """Return the real user id in the text of /proc/PID/status; empty if it has none."""
    uid = _UID.search(status)
    return uid[1] if uid else ""


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
