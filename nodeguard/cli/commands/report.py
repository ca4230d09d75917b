"""nodeguard report: the availability of the fleet in the history of an aggregator."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import get_args

import msgspec

from nodeguard.backtest.availability import Grouping, availability
from nodeguard.backtest.fleet_record import fleet_record
from nodeguard.cli.options import add_output
from nodeguard.cli.progress import elapsed
from nodeguard.cli.render.report import report_lines
from nodeguard.cli.render.terminal import format_lines
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration

# Where the manifests, and the systemd unit of the aggregator, keep the history.
_HISTORIES = "/var/lib/nodeguard", "/var/lib/nodeguard-aggregator"

# The longest --since in seconds: ten years.
_LONGEST = 3650 * 86_400


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UserError."""
    from nodeguard.aggregator.history.reader import read_transitions  # noqa: PLC0415 - brings SQLite

    path = options.history or default_history(_HISTORIES)
    with elapsed("reading the history"):
        history = read_transitions(path)
        try:
            record = fleet_record(history.events)
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}: damaged ({error}): name a copy") from None
        since = max(history.since, history.until - options.since)
        report = availability(record, since, history.until, options.by)
    print_output(document_or_text(report, options.output, lambda: format_lines(report_lines(report))))
    return OK


def default_history(directories: Sequence[str]) -> str:
    """Return the first of some directories that has a history; the first of all where none has one."""
    from nodeguard.aggregator.history.file import NAME  # noqa: PLC0415 - brings SQLite

    return next((path for path in directories if os.path.lexists(f"{path}/{NAME}")), directories[0])


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard report",
        description="Show the availability of the fleet: faults, time between failures, time to repair, "
        "GPU-hours out and false alarms, from the history of an aggregator.",
        examples=("nodeguard report --since 30d --by check", "nodeguard report history.sqlite -o json"),
        epilog="Reads only the file. Exit codes: 0 shown; 3 the history cannot be read.",
    )
    add = parser.add_argument
    add("history", metavar="HISTORY", nargs="?",
        help=f"file or directory of aggregator --history ({' or '.join(_HISTORIES)})")  # fmt: skip
    add("--since", metavar="TIME", type=lambda text: duration(text, _LONGEST), default=30 * 86_400.0,
        help="how far back from the end of the history, such as 7d (30d)")  # fmt: skip
    add("--by", choices=get_args(Grouping), default="check", help="what the table has a line for (check)")
    add_output(parser, "text", "json", "yaml")
    return parser
