"""nodeguard incidents: what is wrong in the fleet, and what people decide of it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Literal

from nodeguard.aggregator.api.asking import Decided
from nodeguard.cli.explain_fleet import no_incident, no_node
from nodeguard.cli.incident_page import incidents_page
from nodeguard.cli.local_aggregator import Aggregator, MissingError, add_format, add_socket, as_json, part
from nodeguard.cli.page import show, width
from nodeguard.cli.person import user
from nodeguard.cli.streams import say
from nodeguard.cli.usage import OK, Parser, near
from nodeguard.fleet.told.incident_forms import IncidentList
from nodeguard.model.incident import State

_DECIDED: dict[str, Literal["acknowledge", "clear"]] = {"acknowledge": "acknowledge", "clear": "clear"}


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    if arguments and arguments[0] in _DECIDED:
        return _decide(arguments)
    parser = Parser(
        prog="nodeguard incidents",
        usage="nodeguard incidents [OPTION]… | acknowledge NAME | clear NAME",
        description="Lists what is wrong in the fleet, worst first, without what is over.",
        epilog="nodeguard incidents acknowledge NAME says that people know; clear NAME, that it is over.",
    )
    add = parser.add_argument
    add("--all", action="store_true", help="also what is over, for a day")
    add("--node", metavar="NAME", default="", help="of this node alone")
    add(
        "--state",
        metavar="STATE",
        type=_state,
        action="append",
        default=[],
        help="in this state alone, as withheld",
    )
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    asked = [f"state={word}" for word in (["all"] if options.all and not options.state else options.state)]
    asked += [f"node={part(options.node)}"] if options.node else []
    target = "incidents" + (f"?{'&'.join(asked)}" if asked else "")
    aggregator = Aggregator(options, "incidents", arguments)
    try:
        told = aggregator.told(target, IncidentList)
    except MissingError:
        raise no_node(aggregator, options.node) from None
    if options.format == "json":
        say(as_json(told))
    else:
        show(incidents_page(told, width()))
    return OK


def _state(word: str) -> str:
    known = [state.slug for state in State]
    if word.lower() not in known:
        raise ArgumentTypeError(f"'{word}' is no state: {near(word.lower(), known)}write {', '.join(known)}")
    return word.lower()


def _decide(arguments: Sequence[str]) -> int:
    what = arguments[0]
    about = (
        "people know of an incident"
        if what == "acknowledge"
        else "an incident is over; what still holds comes back"
    )
    parser = Parser(prog=f"nodeguard incidents {what}", description=f"Says that {about}.")
    parser.add_argument("name", metavar="NAME", help="the incident")
    parser.add_argument("--by", default=user(), metavar="NAME", help="who says so (you)")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments[1:])
    aggregator = Aggregator(options, "incidents", arguments)
    wanted = Decided(_DECIDED[what], options.by)
    try:
        aggregator.done(f"incidents/{part(options.name)}", wanted, options.format)
    except MissingError:
        raise no_incident(aggregator, options.name) from None
    return OK
