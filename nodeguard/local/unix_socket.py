"""A socket in the file system that only root and its own user may speak at."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from contextlib import suppress

# Bytes of a socket's name: see unix(7).
_LONGEST = 107

_CREDENTIALS = struct.Struct("3i")  # process, user, group: see socket(7), SO_PEERCRED


def bind_socket(path: str, who: str) -> socket.socket:
    """A socket of mode 0600 at a path whose directory is made where only it is missing; it does not listen
    yet. who: the service, in one word. Raises OSError where it cannot be made, where another such service
    listens there, or where something is there that is no socket.
    """
    if len(os.fsencode(path)) > _LONGEST:
        too_long = os.strerror(errno.ENAMETOOLONG)
        raise OSError(errno.ENAMETOOLONG, f"{too_long}: {_LONGEST} bytes at most", path)
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        os.mkdir(directory, 0o755)
    _clear_away(path, who)
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        before = os.umask(0o177)
        try:
            own.bind(path)
        finally:
            os.umask(before)
    except OSError:
        own.close()
        raise
    return own


def is_authorized_peer(peer: socket.socket) -> bool:
    """Whether the kernel says that root, or the user of this process, is at the other end."""
    user = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
    return user in {0, os.geteuid()}


def _clear_away(path: str, who: str) -> None:
    """Take away a socket that a service has left. Raises OSError where there is anything else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "is no socket and is left as it is", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as other:
        other.settimeout(1.0)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            other.connect(path)
            raise FileExistsError(errno.EEXIST, f"another {who} listens there", path)
    with suppress(FileNotFoundError):
        os.unlink(path)
