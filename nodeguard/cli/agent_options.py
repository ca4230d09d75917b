"""What nodeguard agent is told: on its command line, else in its file, else by default."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodeguard.agent.control import PATH
from nodeguard.agent.options import AggregatorOptions, OptionsFile, read_options_file
from nodeguard.cli.options import add_checks, add_site, directory
from nodeguard.cli.usage import ArgumentParser, UsageError, address, duration
from nodeguard.config.yaml_document import ConfigError

_LISTEN = "127.0.0.1:9434"
_SPREAD = "1m"

# What is told of elsewhere, where it is wrong.
_OF_THE_SITE = ("platform", "instance_type")


class Options(Struct, frozen=True):
    """What the agent is told.

    config: the file that says so, empty for none. filed: which settings it says.
    listen: host and port. state: absolute path, empty for none. spread: seconds. root: where the machine's
    root directory is. socket: where to be asked, empty for nowhere. aggregator: None where
    there is nobody to report to.
    """

    config: str
    filed: frozenset[str]
    listen: tuple[str, int]
    node: str
    state: str
    checks: tuple[str, ...]
    platform: str
    instance_type: str
    spread: float
    once: bool
    root: str
    bundle: str | None
    speed: float
    socket: str
    aggregator: AggregatorOptions | None

    def named(self, setting: str) -> str:
        """A setting as the user said it: with its file, or as an option."""
        return f"{self.config}: {setting}" if setting in self.filed else f"--{setting.replace('_', '-')}"


def options(arguments: Sequence[str]) -> Options:
    """What a command line says, and the file that it names. Raises UsageError where either is wrong."""
    given = _parser().parse_args(arguments)
    file = _config(given.config)
    if given.bundle is None and given.speed != 1.0:
        raise UsageError("--speed goes with --from: a live machine has a time of its own")
    if given.bundle and given.root:
        raise UsageError("--root goes without --from: a recording has no other root")
    node = given.node or file.node or os.environ.get("NODE_NAME") or os.uname().nodename
    for word in (node, given.platform, given.instance_type):
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise UsageError(f"{word!r} is no UTF-8: write it anew")
    return Options(
        config=given.config or "",
        filed=frozenset(name for name in _OF_THE_SITE if not getattr(given, name) and getattr(file, name)),
        listen=given.listen or _said(address, file.listen or _LISTEN, given, "listen"),
        node=node,
        state=str(Path(given.state or file.state).absolute()) if given.state or file.state else "",
        checks=tuple(given.checks) or file.checks,
        platform=given.platform or file.platform,
        instance_type=given.instance_type or file.instance_type,
        spread=given.spread or _said(duration, file.spread or _SPREAD, given, "spread"),
        once=given.once,
        root=given.root or "",
        bundle=given.bundle,
        speed=given.speed,
        socket=given.socket or file.socket or ("" if given.bundle else PATH),
        aggregator=file.aggregator,
    )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard agent",
        description="Judge this machine all the time, and serve what is found as metrics.",
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="settings, which the options below override")
    add("--listen", metavar="HOST:PORT", type=address,
        help=f"where to serve /metrics, /healthz and /readyz ({_LISTEN})")  # fmt: skip
    add("--state", metavar="DIR", type=directory, help="remember here what a restart must not forget")
    add("--socket", metavar="PATH", help=f"where release and clear are asked for ({PATH})")
    add("--node", metavar="NAME", default="", help="the node's name ($NODE_NAME, or the machine's)")
    add("--root", metavar="DIR", type=directory, help="where the machine's root directory is (/)")
    add(
        "--from",
        dest="bundle",
        metavar="DIR",
        type=directory,
        help="a recording instead of this machine, live",
    )
    add("--speed", metavar="N", type=_speed, default=1.0, help="with --from: so many times as fast")
    about = f"on SIGHUP, adopt new checks within so long, each node at a time of its own ({_SPREAD})"
    add("--spread", metavar="TIME", type=duration, help=about)
    add("--once", action="store_true", help="end after one round of every source")
    add_checks(parser)
    add_site(parser)
    return parser


def _config(path: str | None) -> OptionsFile:
    try:
        return read_options_file(path) if path else OptionsFile()
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _said(of: Callable[[str], Any], text: str, given: Namespace, name: str) -> Any:
    """A value out of the file."""
    try:
        return of(text)
    except ArgumentTypeError as error:
        raise UsageError(f"{given.config}: {name}: {error}") from None


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise ArgumentTypeError(f"'{text}' is no speed: write a number from 0.1 to 1000")
    return speed
