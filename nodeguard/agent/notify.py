"""Telling systemd that the agent is ready, alive, and about to end. Source: sd_notify(3)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send a state, such as `READY=1`, to who started us, where that wants to know; one that does not
    read is told nothing.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.send(state.encode())


def watchdog() -> float:
    """Seconds between two signs of life, half of systemd's patience; 0 where it asks for none."""
    try:
        return max(0, int(os.environ.get("WATCHDOG_USEC", "0"))) / 2e6
    except ValueError:
        return 0.0
