"""Ports of this machine for what a test starts."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

# Below those that any kernel gives to connections, which may take a port before who was promised it listens.
_FIRST, _COUNT = 10_000, 6_000

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on. None is given twice, since whoever got one may listen later."""
    with ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            port = _FIRST + secrets.randbelow(_COUNT)
            if port in _given:
                continue
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            ports.append(port)
        return ports


def free_address() -> str:
    """A free port, with its host."""
    return f"127.0.0.1:{free_ports(1)[0]}"
