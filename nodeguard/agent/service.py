"""An agent at work: its pages served, its life told to systemd, its end on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from nodeguard.agent.agent import Agent
from nodeguard.agent.http import Page, serve
from nodeguard.agent.metrics import CONTENT_TYPE, as_metrics
from nodeguard.agent.notify import notify, watchdog
from nodeguard.agent.paced import PacedMachine
from nodeguard.model.finding import Verdict
from nodeguard.sources.live import LiveMachine

_TEXT = "text/plain; charset=utf-8"


async def attend(agent: Agent, host: str, port: int, *, once: bool) -> Verdict | None:
    """Let an agent judge and serve what it found, until SIGTERM, SIGINT, or every source was read once.

    Returns the last verdict, None where there is none. Raises OSError where it cannot listen.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    server = await serve(host, port, pages(agent))
    beside = [_tell_systemd(agent), *([_once(agent)] if once else [])]
    tasks = [loop.create_task(one) for one in beside]
    async with server:
        await agent.run()
    notify("STOPPING=1")
    for task in tasks:
        task.cancel()
    return agent.verdict


def follow(machine: LiveMachine | PacedMachine, agent: Agent) -> None:
    """Have the kernel log read as soon as it has a line."""
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


def pages(agent: Agent) -> dict[str, Callable[[], Page]]:
    """What is served, by path."""

    def metrics() -> Page:
        if agent.verdict is None:
            return 503, _TEXT, "no source has been read yet\n"
        return 200, CONTENT_TYPE, as_metrics(agent.verdict, agent.ages(), agent.rounds)

    def ready() -> Page:
        unheard = ", ".join(agent.unheard())
        return (503, _TEXT, f"not read yet: {unheard}\n") if unheard else (200, _TEXT, "ready\n")

    return {"/metrics": metrics, "/healthz": lambda: (200, _TEXT, "alive\n"), "/readyz": ready}


async def _tell_systemd(agent: Agent) -> None:
    """Ready once something was judged; alive as long as the loop turns."""
    while agent.verdict is None:
        await asyncio.sleep(0.1)
    notify("READY=1")
    while every := watchdog():
        notify("WATCHDOG=1")
        await asyncio.sleep(every)


async def _once(agent: Agent) -> None:
    while any(agent.unheard()):
        await asyncio.sleep(0.05)
    agent.stop()
