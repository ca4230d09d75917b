"""nodeguard inject: a synthetic fault of this machine, to rehearse alerts, marks and their release."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from nodeguard.agent.control import EndInjections, InjectFault
from nodeguard.cli.local_agent import add_socket, request, request_status
from nodeguard.cli.options import add_output
from nodeguard.cli.render.agent_status import injection_fields, injection_output
from nodeguard.cli.render.terminal import CHECK, format_view
from nodeguard.cli.streams import document_or_text, print_message, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.fleet_api.view import fields_view
from nodeguard.model.injection import MAX_SECONDS

# Seconds for the answer.
_TIMEOUT = 30.0

_DEFAULT_SECONDS = 600.0


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    ends = options.clear is not None or options.all
    if sum((bool(options.check), ends, options.list)) != 1:
        raise UsageError("name a CHECK to inject, or use --list or --clear; see nodeguard inject --help")
    if options.all and options.clear is None:
        raise UsageError("--all needs --clear: write nodeguard inject --clear --all")
    if not options.check and (options.target or options.seconds is not None or options.dry_run):
        raise UsageError("--target, --for and --dry-run need a CHECK")
    if options.list:
        _print_list(options)
    elif ends:
        if options.clear and options.all:
            raise UsageError("--all excludes an ID: remove one of them")
        print_message(request(options.socket, EndInjections(options.clear, options.all), _TIMEOUT))
    else:
        seconds = _DEFAULT_SECONDS if options.seconds is None else options.seconds
        fault = InjectFault(options.check, options.target, seconds, options.dry_run)
        print_message(request(options.socket, fault, _TIMEOUT))
    return OK


def _print_list(options: Namespace) -> None:
    status = request_status(options.socket)
    view = fields_view(injection_fields(status))
    print_output(document_or_text(injection_output(status), options.output, lambda: format_view(view, CHECK)))


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard inject",
        description="Inject a fault of a check on this machine for a while, without touching hardware: it is"
        " reported, marked and released like a real one, and called injected everywhere. The policy of the"
        " aggregator has to allow it.",
        examples=(
            "nodeguard inject gpu-lost --target gpu/0000:3b:00 --for 10m",
            "nodeguard inject --list",
            "nodeguard inject --clear --all",
        ),
        epilog="Exit codes: 0 done; 3 refused, or the agent did not answer.",
    )
    add = parser.add_argument
    add("check", metavar="CHECK", nargs="?", default="", help="check to inject, such as gpu-lost")
    add("--target", metavar="TARGET", default="",
        help="where, such as gpu/0000:3b:00; not needed if the check has one target")  # fmt: skip
    add("--for", dest="seconds", metavar="TIME", type=partial(duration, longest=MAX_SECONDS),
        help="how long, at most 1d (10m)")  # fmt: skip
    add("--dry-run", action="store_true", help="only check whether it is possible")
    add("--list", action="store_true", help="list the injected faults of this machine")
    about = "end an injected fault; without an ID, the only one"
    add("--clear", metavar="ID", nargs="?", const="", help=about)
    add("--all", action="store_true", help="with --clear: end all injected faults")
    add_output(parser, "text", "json", "yaml")
    add_socket(parser)
    return parser
