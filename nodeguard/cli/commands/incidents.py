"""nodeguard incidents: what is wrong in the fleet, and what people decide of it."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from nodeguard.aggregator.api.requests import IncidentAction
from nodeguard.cli.aggregator_client import (
    AggregatorClient,
    NotFoundError,
    add_format,
    add_socket,
    quote_name,
    to_json,
)
from nodeguard.cli.commands.explain_fleet import no_incident, no_node
from nodeguard.cli.options import current_user
from nodeguard.cli.progress import progress
from nodeguard.cli.render.incident import incident_list_lines
from nodeguard.cli.render.terminal import print_lines, printable, terminal_width
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, did_you_mean
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.model.incident import ClearAnswer, IncidentState

_DECIDED: dict[str, Literal["acknowledge", "clear"]] = {"acknowledge": "acknowledge", "clear": "clear"}


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    if arguments and arguments[0] in _DECIDED:
        return _decide(arguments)
    parser = ArgumentParser(
        prog="nodeguard incidents",
        usage="nodeguard incidents [OPTION]… | acknowledge NAME | clear NAME",
        description="Lists what is wrong in the fleet, worst first, without what is over.",
        epilog="nodeguard incidents acknowledge NAME notes that people know of it; nodeguard incidents clear "
        "NAME has its findings cleared.",
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
    asked += [f"node={quote_name(options.node)}"] if options.node else []
    target = "incidents" + (f"?{'&'.join(asked)}" if asked else "")
    aggregator = AggregatorClient(options, "incidents", arguments)
    try:
        told = aggregator.get(target, IncidentList)
    except NotFoundError:
        raise no_node(aggregator, options.node) from None
    if options.format == "json":
        print_output(to_json(told))
    else:
        print_lines(incident_list_lines(told, terminal_width()))
    return OK


def _state(word: str) -> str:
    known = [state.slug for state in IncidentState]
    if word.lower() not in known:
        raise ArgumentTypeError(
            f"'{word}' is no state: {did_you_mean(word.lower(), known)}write {', '.join(known)}"
        )
    return word.lower()


def _decide(arguments: Sequence[str]) -> int:
    what = arguments[0]
    about = (
        "Notes that people know of an incident."
        if what == "acknowledge"
        else "Asks the node's agent to clear the findings of an incident, and prints its answer. A finding "
        "whose condition holds now is not cleared. A domain is then no longer degraded, and a suppressed "
        "check is believed again."
    )
    parser = ArgumentParser(
        prog=f"nodeguard incidents {what}",
        description=about,
        epilog="Exit codes: 0 done, or asked for; 3 refused, or nobody could be asked.",
    )
    parser.add_argument("name", metavar="NAME", help="the incident")
    parser.add_argument("--by", default=current_user(), metavar="NAME", help="who asks for it (you)")
    if what == "clear":
        parser.add_argument("--no-wait", action="store_true", help="do not wait for the agent's answer")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments[1:])
    aggregator = AggregatorClient(options, "incidents", arguments)
    wanted = IncidentAction(_DECIDED[what], options.by)
    target = f"incidents/{quote_name(options.name)}"
    try:
        if what == "clear" and not options.no_wait:
            _clear(aggregator, target, wanted, options.format)
        else:
            aggregator.post_and_print(target, wanted, options.format)
    except NotFoundError:
        raise no_incident(aggregator, options.name) from None
    return OK


class ClearOutput(Struct, frozen=True):
    """What nodeguard incidents clear --format json prints: what was done, and the answer of the agent."""

    said: str
    answer: ClearAnswer | None
    answer_says: str


# Seconds for which the agent's answer is waited for: it is asked with the reply to its next heartbeat, and
# answers with the one after. Seconds until the decision is known to the aggregator that was asked.
WAIT = 40.0
KNOWN_WITHIN = 3.0
_EVERY = 0.5


def _clear(aggregator: AggregatorClient, target: str, wanted: IncidentAction, form: str) -> None:
    """Have an incident cleared, and print what the node's agent answers. Raises UsageError for a refusal."""
    before = aggregator.get(target, IncidentView)
    done = aggregator.post(target, wanted)
    page = _answered(aggregator, target, before) if before.node else None
    answer = page.clear_result if page is not None else None
    says = printable(page.clear_message) if page is not None else ""
    if answer == ClearAnswer.REFUSED:
        raise UsageError(f"{before.name} is not cleared: {says}")
    if answer == ClearAnswer.PARTLY:
        raise UsageError(f"{before.name} is cleared in part only: {says}")
    if form == "json":
        print_output(to_json(ClearOutput(done.message, answer, says)))
    else:
        print_output(says if answer == ClearAnswer.DONE and says else done.message)


def _answered(aggregator: AggregatorClient, target: str, before: IncidentView) -> IncidentView | None:
    """Return the incident once the agent has answered; None where it does not in time."""
    began = time.monotonic()
    with progress("waiting for the node's agent", WAIT):
        while (waited := time.monotonic() - began) < WAIT:
            page = aggregator.get(target, IncidentView)
            is_known = page.clear_request != before.clear_request
            if is_known and page.clear_result != ClearAnswer.WAITING:
                return page
            if not is_known and waited >= KNOWN_WITHIN:
                return None
            time.sleep(_EVERY)
    return None
