"""The command line of nodeguard agent, and its merge with the options file and the defaults."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodeguard.agent.control import PATH
from nodeguard.agent.options import AgentOptions, OptionsFile, read_options_file
from nodeguard.cli.local_agent import default_socket
from nodeguard.cli.options import (
    AGENT_SOCKET_ENVIRONMENT,
    add_checks,
    add_root,
    add_runbook_url_base,
    add_site,
    directory,
)
from nodeguard.cli.usage import ArgumentParser, UsageError, address, duration, url_base
from nodeguard.local.logs import FORMATS, LEVELS
from nodeguard.model.projection import project

_LISTEN = "127.0.0.1:9434"
_SPREAD = "1m"

# Settings that are validated later, with an error that names the place where the user set them.
_SITE_SETTINGS = ("platform", "instance_type")


def agent_options(args: Namespace) -> AgentOptions:
    """Return the options of a parsed command line and its options file. Raises UserError."""
    file = read_options_file(args.config) if args.config else OptionsFile()
    if args.bundle is None and args.speed != 1.0:
        raise UsageError("--speed needs --from: a live machine runs in real time")
    if args.bundle and args.root:
        raise UsageError("--root excludes --from: a recording has its own root")
    node = args.node or file.node or os.environ.get("NODE_NAME") or os.uname().nodename
    for text in (node, args.platform, args.instance_type):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(f"{text!r} is not UTF-8: write it again")
    from_file = (name for name in _SITE_SETTINGS if not getattr(args, name) and getattr(file, name))
    settings = {name: getattr(args, name, None) or getattr(file, name) for name in file.__struct_fields__}
    changed = {
        "config": args.config or "",
        "from_file": frozenset(from_file),
        "listen": args.listen or _parse(address, file.listen or _LISTEN, args, "listen"),
        "node": node,
        "state": str(Path(settings["state"]).absolute()) if settings["state"] else "",
        "checks": tuple(args.checks) or file.checks,
        "spread": args.spread or _parse(duration, file.spread or _SPREAD, args, "spread"),
        "runbook_url_base": settings["runbook_url_base"]
        and _parse(url_base, settings["runbook_url_base"], args, "runbook_url_base"),
        "root": args.root or "",
        "socket": settings["socket"] or ("" if args.bundle else default_socket()),
    }
    return project(AgentOptions, args, **(settings | changed))


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard agent",
        description="Check this machine continuously, serve metrics, and report to aggregators.",
        examples=(
            "nodeguard agent --config /etc/nodeguard/agent.yaml",
            "nodeguard agent --from recordings/gpu-7 --speed 60",
        ),
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="read settings from this file; options override them")
    add("--listen", metavar="HOST:PORT", type=address,
        help=f"serve /metrics, /healthz and /readyz here ({_LISTEN})")  # fmt: skip
    add(
        "--state",
        metavar="DIR",
        type=directory,
        help="store the state that a restart needs in this directory",
    )
    default = f"${AGENT_SOCKET_ENVIRONMENT}, else {PATH}"
    about = f"listen here for nodeguard status, gpus, clear and inject (default: {default})"
    add("--socket", metavar="PATH", help=about)
    add("--socket-group", metavar="GROUP", help="let members of this group read the status at the socket")
    about = "without an aggregator: let root inject faults with nodeguard inject"
    add("--allow-injection", action="store_true", help=about)
    add("--log-format", choices=FORMATS, help="format of the log (auto: text on a terminal, else JSON)")
    add("--log-level", choices=LEVELS, help="lowest level that is logged (info)")
    add("--node", metavar="NAME", default="", help="name of the node ($NODE_NAME, or the host name)")
    add_root(parser)
    add(
        "--from",
        dest="bundle",
        metavar="DIR",
        type=directory,
        help="replay a recording instead of this machine",
    )
    add("--speed", metavar="N", type=_speed, default=1.0, help="with --from: speed of the replay (1)")
    about = f"on SIGHUP, adopt new checks within this time, each node at a time of its own ({_SPREAD})"
    add("--spread", metavar="TIME", type=duration, help=about)
    add("--once", action="store_true", help="end after one reading of every source")
    add_checks(parser)
    add_runbook_url_base(parser)
    add_site(parser)
    return parser


def _parse(parse: Callable[[str], Any], text: str, args: Namespace, name: str) -> Any:
    """Return a value of the options file. Raises UsageError."""
    try:
        return parse(text)
    except ArgumentTypeError as error:
        raise UsageError(f"{args.config}: {name}: {error}") from None


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise ArgumentTypeError(f"'{text}' is not a speed: write a number from 0.1 to 1000")
    return speed
