"""Unix sockets of a service: its control socket, for root and its own user, and the lock of its state."""

from __future__ import annotations

import asyncio
import errno
import grp
import hashlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

logger = logging.getLogger(__name__)

# Bytes of a socket's path: see unix(7).
_LONGEST = 107

# Seconds between two checks that a socket still has its path.
_CHECK_SECONDS = 5.0

_CREDENTIALS = struct.Struct("3i")  # process, user, group: see socket(7), SO_PEERCRED


def bind_socket(path: str, who: str, group: str = "") -> socket.socket:
    """Return a socket of mode 0600, bound to a path and not listening yet. who: the name of the service.

    The directory is made if only the directory is missing. group: its members may connect, too; the service
    then authorizes each request. Raises OSError if the socket cannot be made, if another such service listens
    there, or if the path is not a socket.
    """
    if len(os.fsencode(path)) > _LONGEST:
        too_long = os.strerror(errno.ENAMETOOLONG)
        raise OSError(errno.ENAMETOOLONG, f"{too_long}: {_LONGEST} bytes at most", path)
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        os.mkdir(directory, 0o755)
    _remove_stale_socket(path, who)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        before = os.umask(0o177)
        try:
            bound.bind(path)
        finally:
            os.umask(before)
        if group:
            _share(path, group)
    except OSError:
        bound.close()
        raise
    return bound


def _share(path: str, group: str) -> None:
    """Let the members of a group connect to a new socket, or remove its path. Raises OSError."""
    try:
        os.chown(path, -1, _group_id(group))
        os.chmod(path, 0o660)
    except OSError:
        os.unlink(path)
        raise


async def listen_again_when_removed(
    path: str, listen: Callable[[], Awaitable[object]], *, is_listening: bool = True
) -> None:
    """Listen at a path again whenever its socket was removed, until the task is cancelled: no client can
    connect to a socket without a path. listen: binds a new socket; may raise OSError. is_listening: whether
    the first attempt, of the caller, succeeded; it has logged its error.
    """
    is_failing = not is_listening
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        # A failed attempt may leave a path at which no service listens.
        if os.path.lexists(path) and not is_failing:
            continue
        try:
            await listen()
        except OSError as error:
            if not is_failing:
                reason = f"{error.strerror or error}: restart this service, or create the directory"
                logger.warning(
                    "cannot create a removed socket again", extra={"socket": path, "error": reason}
                )
            is_failing = True
            continue
        if is_listening:
            logger.warning("the socket was removed: a new one is created", extra={"socket": path})
        else:
            logger.info("listening on the socket", extra={"socket": path})
        is_failing, is_listening = False, True


def is_authorized_peer(peer: socket.socket) -> bool:
    """Return whether the peer is root or the user of this process."""
    return peer_user(peer) in {0, os.geteuid()}


def peer_user(peer: socket.socket) -> int:
    """Return the user id of the peer, as the kernel recorded it when the peer connected."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(credentials)[1]
    return user


def _group_id(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise OSError(errno.EINVAL, f"there is no group {group}") from None


def _remove_stale_socket(path: str, who: str) -> None:
    """Remove a socket of a service that has ended. Raises OSError if anything else is there."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "is not a socket and is not removed", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as other:
        other.settimeout(1.0)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            other.connect(path)
            raise FileExistsError(errno.EEXIST, f"another {who} listens there", path)
    with suppress(FileNotFoundError):
        os.unlink(path)


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
