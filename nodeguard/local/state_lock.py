"""One service for each directory of state: two would overwrite what the other remembers."""

from __future__ import annotations

import errno
import hashlib
import socket


def acquire_state_lock(directory: str, who: str = "") -> socket.socket | None:
    """What keeps others off a directory for as long as it is open; None where another like it here has it.

    who: the kind of service, empty for an agent; one of another kind has files of other names.

    A name in the kernel, not a file: it needs no disk that may hang, and is free as soon as its process ends.
    """
    name = hashlib.blake2b(directory.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        held.bind(f"\0nodeguard-{who}{'-' if who else ''}state-{name}")
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return held
