"""A connection to a receiver, made within a deadline."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from typing import Any

from nodeguard.agent.reporting.endpoint import Address
from nodeguard.agent.reporting.hurry import Hurry
from nodeguard.agent.reporting.timed import TimedSocket, patiently


def connect(address: Address, context: ssl.SSLContext | None, hurry: Hurry, deadline: float) -> TimedSocket:
    """A connection to the first number of an address that takes one. Raises OverdueError, OSError.

    context: for TLS. deadline: of the clock that never jumps; the name service alone may take longer.
    """
    hosts = address.place or (address.host,)
    found = [one for host in hosts for one in socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)]
    for left, (family, kind, protocol, _, there) in zip(range(len(found), 0, -1), found, strict=True):
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            # One that nobody answers at leaves time for the others.
            _reach(sock, there, hurry, time.monotonic() + hurry.left(deadline) / left)
            return TimedSocket(_secured(sock, address, context, hurry, deadline), hurry)
        except BaseException as error:
            sock.close()
            if left == 1 or not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                raise
    raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


def _reach(sock: socket.socket, there: tuple[Any, ...], hurry: Hurry, deadline: float) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wrong = sock.connect_ex(there)
    if wrong == errno.EINPROGRESS:
        hurry.wait(sock, select.POLLOUT, deadline)
        wrong = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if wrong:
        raise OSError(wrong, os.strerror(wrong))


def _secured(
    sock: socket.socket, address: Address, context: ssl.SSLContext | None, hurry: Hurry, deadline: float
) -> socket.socket:
    if context is None:
        return sock
    tls = context.wrap_socket(sock, server_hostname=address.host, do_handshake_on_connect=False)
    try:
        patiently(tls.do_handshake, tls, select.POLLIN, hurry, deadline)
    except BaseException:
        tls.close()
        raise
    return tls
