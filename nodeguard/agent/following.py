"""The kernel log, read as soon as it has a line."""

from __future__ import annotations

import asyncio

from nodeguard.agent.agent import Agent
from nodeguard.agent.paced import PacedMachine
from nodeguard.sources.live import LiveMachine


def follow(machine: LiveMachine | PacedMachine, agent: Agent) -> None:
    """Have the kernel log of a machine read as soon as it has a line."""
    if isinstance(machine, PacedMachine):
        return
    loop, descriptor = asyncio.get_running_loop(), machine.log_descriptor()
    if descriptor is None:
        return

    def readable() -> None:
        loop.remove_reader(descriptor)
        agent.read("kmsg", together=0.0)
        again()

    def again() -> None:
        # Watched again once the round has taken what there was: until then it is readable all the time.
        if agent.is_reading("kmsg"):
            loop.call_later(0.002, again)
        else:
            loop.add_reader(descriptor, readable)

    loop.add_reader(descriptor, readable)
