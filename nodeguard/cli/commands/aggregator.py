"""nodeguard aggregator: hears the agents, plans, and has marks written."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing

from nodeguard.agent.transitions import LogLine
from nodeguard.aggregator.options import AggregatorOptions, options
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.usage import OK, UNKNOWN, UsageError
from nodeguard.local.json_log import JsonLog
from nodeguard.model.incident import Incident

_MISSING = "the aggregator needs more than the agent: install gpu-nodeguard[aggregator]"


def run(arguments: Sequence[str]) -> int:
    """Run the aggregator; returns the exit code. Raises UsageError."""
    told = options(arguments)
    try:
        import uvloop  # noqa: PLC0415 - for this command alone
    except ModuleNotFoundError:
        raise UsageError(_MISSING) from None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_aggregator(told))


async def _aggregator(told: AggregatorOptions) -> int:
    from nodeguard.aggregator.app import AggregatorApp, StartError  # noqa: PLC0415 - brings servers

    catalogue, _ = load_catalogue(told.checks)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    with closing(JsonLog(sys.stderr.fileno(), told.pod)) as log:

        def tell(said: str) -> None:
            log({"event": "note", "said": said})

        def happened(one: Incident) -> None:
            log(_incident(one))

        async with AsyncExitStack() as stack:
            try:
                made = await AggregatorApp.start(told, catalogue, tell, happened, stack)
            except StartError as error:
                raise UsageError(str(error)) from None
            loop.add_signal_handler(signal.SIGHUP, made.request_reload)
            ending = asyncio.create_task(ended.wait())
            working = [asyncio.create_task(one) for one in made.tasks()]
            done, _ = await asyncio.wait([ending, *working], return_when=asyncio.FIRST_COMPLETED)
            for task in (ending, *working):
                task.cancel()
            await asyncio.gather(ending, *working, return_exceptions=True)
            broken = [task for task in done if task is not ending]
            for task in broken:
                why = None if task.cancelled() else task.exception()
                tell(f"error in the aggregator itself, please report it: {type(why).__name__}: {why}")
        return UNKNOWN if broken else OK


def _incident(one: Incident) -> LogLine:
    """What the log says of an incident that has changed."""
    return {
        "event": "incident",
        "node": one.node,
        "incident": one.name,
        "state": one.state.value,
        "health": one.health.value,
        "check": one.cause,
        "target": one.target,
        "action": one.action.value,
        "scope": one.scope,
        "said": one.message,
        "why": one.detail,
    }
