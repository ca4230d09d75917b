"""nodeguard agent: the same judgement, always on."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from zlib import crc32

from nodeguard.agent.agent import Agent
from nodeguard.agent.judgement import Judgement
from nodeguard.agent.paced import PacedMachine
from nodeguard.agent.service import attend, follow
from nodeguard.agent.transitions import Line
from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.cli.check import exit_code
from nodeguard.cli.knowledge import knowledge
from nodeguard.cli.moments import rfc3339
from nodeguard.cli.options import add_checks, add_machine, folder, hear_instance_type, hold_platform
from nodeguard.cli.streams import complain
from nodeguard.cli.usage import OK, UNKNOWN, Parser, UsageError, duration
from nodeguard.derive.derive import Site
from nodeguard.sources.every import every_source
from nodeguard.sources.live import LiveMachine

_LISTEN = "127.0.0.1:9434"


def run(arguments: Sequence[str]) -> int:
    """Run the agent; returns the exit code."""
    parser = Parser(
        prog="nodeguard agent",
        description="Judge this machine all the time, and serve what is found as metrics.",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", type=_address, default=_address(_LISTEN),
                        help=f"where to serve /metrics, /healthz and /readyz ({_LISTEN})")  # fmt: skip
    parser.add_argument(
        "--from", dest="bundle", metavar="DIR", type=folder, help="a recording instead of this machine, live"
    )
    parser.add_argument(
        "--speed", metavar="N", type=_speed, default=1.0, help="with --from: so many times as fast"
    )
    about = "on SIGHUP, adopt new checks within so long, each node at a time of its own (1m)"
    parser.add_argument("--spread", metavar="TIME", type=duration, default=60.0, help=about)
    parser.add_argument("--once", action="store_true", help="end after one round of every source")
    add_checks(parser)
    add_machine(parser)
    options = parser.parse_args(arguments)
    return asyncio.run(_agent(options))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ArgumentTypeError(f"'{text}' is no HOST:PORT: write it like {_LISTEN}")
    return host.strip("[]"), int(port)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise ArgumentTypeError(f"'{text}' is no speed: write a number from 0.1 to 1000")
    return speed


def _bundle(options: Namespace) -> WatchedBundle | None:
    if options.bundle is None:
        if options.speed != 1.0:
            raise UsageError("--speed goes with --from: a live machine has a time of its own")
        return None
    try:
        return WatchedBundle(options.bundle, _log)
    except BundleError as error:
        raise UsageError(str(error)) from None


async def _agent(options: Namespace) -> int:
    catalogue, signals = knowledge(options.checks)
    hold_platform(catalogue, options.platform)
    hear_instance_type(catalogue, options)
    sources = every_source(catalogue.patterns)
    bundle = _bundle(options)
    if bundle is None:
        site = Site(options.platform, options.instance_type)
        with LiveMachine() as live:
            judgement = Judgement(catalogue, signals, site)
            agent = Agent(live, sources, judgement, _log, random.random())  # noqa: S311 - jitter
            follow(live, agent)
            return await _run(options, agent, judgement)
    told = bundle.recording.manifest
    site = Site(options.platform or told.platform, options.instance_type or told.instance_type)
    present = [source for source in sources if bundle.is_recorded(source.name, source.paths)]
    judgement = Judgement(catalogue, signals, site)
    machine = PacedMachine(bundle, options.speed)
    agent = Agent(machine, present, judgement, _log, 0.0, options.speed)
    if any(source.name == "kmsg" for source in present):
        follow(machine, agent)
    return await _run(options, agent, judgement)


async def _run(options: Namespace, agent: Agent, judgement: Judgement) -> int:
    host, port = options.listen
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: _reload(options, judgement))
    try:
        verdict = await attend(agent, host, port, once=options.once)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"cannot listen on {host}:{port}: {why}: name another --listen") from None
    if verdict is None:
        return UNKNOWN
    _log({"event": "end", "health": verdict.health.value, "findings": len(verdict.findings)})
    return exit_code(verdict, strict=False) if options.once else OK


def _reload(options: Namespace, judgement: Judgement) -> None:
    """Read the checks again, and adopt them a little later; wrong ones are kept out."""
    try:
        catalogue, signals = knowledge(options.checks)
    except UsageError as error:
        _log({"event": "reload refused", "why": str(error)})
        return

    def adopt() -> None:
        judgement.adopt(catalogue, signals)
        _log({"event": "reloaded", "checks": len(catalogue.checks)})

    asyncio.get_running_loop().call_later(part_of(os.uname().nodename, options.spread), adopt)


def part_of(node: str, spread: float) -> float:
    """Seconds after which a node adopts what all adopt: a part of the spread that its name tells."""
    return spread * (crc32(node.encode()) / 2**32)


def _log(line: Line) -> None:
    complain(
        json.dumps({"at": rfc3339(time.time()), "node": os.uname().nodename, **line}, ensure_ascii=False)
    )
