"""The limit on open files, and the number of connections that it allows: each is an open file."""

from __future__ import annotations

import resource
from contextlib import suppress

from msgspec import Struct

# Open files that are reserved for other purposes than agents' connections: certificates, the history, the
# metrics port (64), the Kubernetes API (up to 100) and the name service.
RESERVED = 256


class ConnectionCapacity(Struct, frozen=True):
    """Capacity for agents. open_files: the limit on open files. connections: number that is accepted."""

    open_files: int
    connections: int

    def shortage(self, expected: int) -> str:
        """Return why not all expected agents can connect, and the remedy; empty where they can."""
        if expected <= self.connections:
            return ""
        if self.connections < most_connections(self.open_files):
            return (
                f"{expected} agents are expected, and an aggregator accepts {self.connections}: run several, "
                "each for a part of the fleet"
            )
        return (
            f"{expected} agents are expected, and {self.open_files} open files allow "
            f"{self.connections}: raise the hard limit on open files to {expected + RESERVED} or more "
            "(LimitNOFILE= of a systemd unit, else of the container runtime), and restart the aggregator"
        )


def connection_capacity(open_files: int, most: int) -> ConnectionCapacity:
    """Return how many agents can connect under a limit on open files. most: connections in any case."""
    return ConnectionCapacity(open_files, min(most, most_connections(open_files)))


def most_connections(open_files: int) -> int:
    """Return how many connections a limit on open files allows."""
    return open_files - min(RESERVED, open_files // 2)


def raise_limit() -> int:
    """Raise this process's limit on open files as far as it may be raised, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
