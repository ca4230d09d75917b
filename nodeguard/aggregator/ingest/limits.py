"""Limits of the ingest server: connections, timeouts, bytes and rates."""

from __future__ import annotations

import math

from msgspec import Struct

from nodeguard.local.rate_limiter import Rate

# A message costs one token, and one more for every full block of this many bytes.
_BLOCK = 16 * 1024


class IngestLimits(Struct, frozen=True):
    """Limits for the connections and messages of agents. An agent may send 64 spooled messages at once.

    connections: open at a time. connections_per_node: an agent has one for each address of this aggregator.
    unauthenticated: connections that have not authenticated yet; at the limit, the oldest is closed.
    unauthenticated_per_address: the same for one address.
    header_timeout: seconds for the TLS handshake and the header of a request; body_timeout: for its body;
    idle_timeout: between two requests. body_bytes: bytes of large messages that are being read at a time.
    connection_rate, node_rate: messages. failure_rate: failed authentications of one address.
    """

    connections: int = 20_000
    connections_per_node: int = 4
    unauthenticated: int = 1024
    unauthenticated_per_address: int = 128
    header_timeout: float = 10.0
    body_timeout: float = 10.0
    idle_timeout: float = 60.0
    body_bytes: int = 64 * 1024 * 1024
    connection_rate: Rate = Rate(100.0, 5.0)
    node_rate: Rate = Rate(200.0, 5.0)
    failure_rate: Rate = Rate(20.0, 0.2)


def cost(size: int) -> float:
    """Return the tokens that a message of `size` bytes costs."""
    return 1.0 + size // _BLOCK


def retry_after(seconds: float) -> str:
    """Return seconds for HTTP's Retry-After header: whole seconds, from 1 to 3600."""
    return str(max(1, math.ceil(min(seconds, 3600.0))))
