"""Free ports of this machine for the processes that a test starts."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import ExitStack

# Below the range of ports of connections: such a connection could take a port before the process listens on it.
_FIRST, _COUNT = 10_000, 6_000

# Processes of one run have ports of their own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

_reserved: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that no process listens on. None is returned twice: its user may listen later."""
    share = _COUNT // _WORKERS
    with ExitStack() as sockets:
        ports: list[int] = []
        while len(ports) < count:
            probe = sockets.enter_context(socket.socket())
            port = _FIRST + _WORKER * share + secrets.randbelow(share)
            if port in _reserved:
                continue
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _reserved.add(port)
            ports.append(port)
        return ports


def free_address() -> str:
    """Return a free port, with its host."""
    return f"127.0.0.1:{free_ports(1)[0]}"
