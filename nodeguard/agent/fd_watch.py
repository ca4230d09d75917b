"""Sources that are read as soon as they have news: the kernel log, and NVML's events."""

from __future__ import annotations

import asyncio

from nodeguard.agent.agent import Agent
from nodeguard.agent.live_replay import LiveReplayMachine
from nodeguard.sources.machines.live import LiveMachine

# Seconds between two rounds of NVML that its events ask for: a round asks each GPU a hundred things, and a
# storm of errors brings a thousand events.
_EVENT_REST = 2.0
# Seconds between two rounds at least where one has failed: what it did not take is there still.
_FAILED_REST = 1.0


def watch_descriptors(machine: LiveMachine | LiveReplayMachine, agent: Agent) -> None:
    """Have the kernel log read as soon as it has a line, and NVML as soon as it tells of an event."""
    log = machine.log_descriptor()
    if log is not None and agent.has_source("kmsg"):
        _read_when_readable(agent, "kmsg", log, 0.002)
    if isinstance(machine, LiveMachine):
        _read_when_readable(agent, "nvml", machine.events_descriptor(), _EVENT_REST)


def _read_when_readable(agent: Agent, source: str, descriptor: int, rest: float) -> None:
    """Read a source as soon as a descriptor is readable, and then not for so many seconds."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        loop.remove_reader(descriptor)
        agent.read(source, together=0.0)
        loop.call_later(rest, again)

    def again() -> None:
        # Watched again once the round has taken what there was: until then it is readable all the time.
        if agent.is_reading(source):
            loop.call_later(rest, again)
        elif source in agent.latest and not agent.latest[source].complete:
            loop.call_later(max(0.0, _FAILED_REST - rest), watch)
        else:
            watch()

    def watch() -> None:
        loop.add_reader(descriptor, readable)

    loop.add_reader(descriptor, readable)
