"""Sources with a file descriptor, read as soon as it is readable: the kernel log and NVML events."""

from __future__ import annotations

import asyncio

from nodeguard.agent.agent import Agent
from nodeguard.agent.live_replay import LiveReplayMachine
from nodeguard.sources.machines.live import LiveMachine

# Seconds between two readings of NVML that its events cause: a reading makes a hundred calls for each GPU,
# and an error storm brings a thousand events.
_EVENT_REST = 2.0
# Seconds between two readings after a failed one: the descriptor stays readable.
_FAILED_REST = 1.0


def watch_descriptors(machine: LiveMachine | LiveReplayMachine, agent: Agent) -> None:
    """Have the kernel log read as soon as it has a line, and NVML as soon as it has an event."""
    log = machine.log_descriptor()
    if log is not None and agent.has_source("kmsg"):
        _read_when_readable(agent, "kmsg", log, 0.002)
    if isinstance(machine, LiveMachine):
        _read_when_readable(agent, "nvml", machine.events_descriptor(), _EVENT_REST)


def _read_when_readable(agent: Agent, source: str, descriptor: int, rest: float) -> None:
    """Read a source as soon as a descriptor is readable, and then not for so many seconds."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        loop.remove_reader(descriptor)
        agent.read(source, together=0.0)
        loop.call_later(rest, resume)

    def resume() -> None:
        # The descriptor stays readable until the reading has taken what there is.
        if agent.is_reading(source):
            loop.call_later(rest, resume)
        elif source in agent.latest and not agent.latest[source].complete:
            loop.call_later(max(0.0, _FAILED_REST - rest), watch)
        else:
            watch()

    def watch() -> None:
        loop.add_reader(descriptor, read)

    watch()
