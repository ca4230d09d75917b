"""Lock of a state directory: two services would overwrite each other's state."""

from __future__ import annotations

import errno
import hashlib
import socket


def acquire_state_lock(directory: str, who: str = "") -> socket.socket | None:
    """Return the lock of a directory, held while it is open; None if another service of this kind has it.

    who: the kind of service, empty for an agent; another kind has other file names.

    The lock is a name in the kernel, not a file: it needs no disk, which may hang, and ends with its process.
    """
    name = hashlib.blake2b(directory.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        lock.bind(f"\0nodeguard-{who}{'-' if who else ''}state-{name}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return lock
