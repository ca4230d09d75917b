"""nodeguard incidents: decisions of operators on incidents; `nodeguard get incidents` lists them."""

from __future__ import annotations

import time
from argparse import Namespace

from msgspec import Struct

from nodeguard.aggregator.api.requests import ActionResult, IncidentAction
from nodeguard.cli.aggregator_client import (
    AggregatorClient,
    add_socket,
    print_result,
    quote_name,
    resolve_incident,
)
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.progress import progress
from nodeguard.cli.streams import document_or_text, print_output, require_fit
from nodeguard.cli.usage import OK, ArgumentParser, UsageError
from nodeguard.fleet_api.schema.incident import IncidentView
from nodeguard.model.incident import ClearAnswer, IncidentState
from nodeguard.model.printable import printable

_ACKNOWLEDGE = "Note that an operator knows of an incident. It is then listed last."
_CLEAR = (
    "Ask the node's agent to clear the findings of an incident, and print its answer. The agent does not "
    "clear a finding while its condition is met. For a domain: end its degraded state. For a suppressed "
    "check: end the suppression."
)
_WITHDRAW = (
    "Withdraw the record that an incident was a false alarm. nodeguard report counts it as a fault again; "
    "the history keeps both."
)
_VERBS = (
    ("acknowledge", "mute an incident", _ACKNOWLEDGE),
    ("clear", "have its findings cleared", _CLEAR),
    ("withdraw", "withdraw the record of a false alarm", _WITHDRAW),
)
_FALSE_ALARM = "record that there was no fault, also of an incident that is over; nodeguard report counts it"


class ClearOutput(Struct, frozen=True):
    """Output of nodeguard incidents clear -o json: the action, and the answer of the agent."""

    message: str
    clear_result: ClearAnswer | None
    clear_message: str


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    decision = _decision(options)
    client = options.connect(options)
    name = resolve_incident(client, options.name)
    target = f"incidents/{quote_name(name)}"
    if options.verb == "clear" and not options.no_wait:
        _clear(client, target, decision, options.output)
    else:
        require_fit(ActionResult(""), options.output)
        print_result(client.post(target, decision), options.output)
    return OK


def _decision(options: Namespace) -> IncidentAction:
    """Return the decision of the command line. Raises UsageError."""
    if options.verb == "acknowledge":
        return IncidentAction(options.verb, options.by)
    if options.verb == "withdraw":
        return IncidentAction(options.verb, options.by, reason=options.reason)
    if options.reason and not options.false_alarm:
        raise UsageError("--reason is for --false-alarm only: add --false-alarm, or remove --reason")
    return IncidentAction(options.verb, options.by, options.false_alarm, options.reason)


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard incidents",
        description="Acknowledge and clear incidents. nodeguard get incidents lists them.",
        examples=(
            "nodeguard incidents acknowledge gpu-7/gpu-lost",
            "nodeguard incidents clear gpu-7/gpu-gsp-failure",
            "nodeguard incidents clear gpu-7/nic-hot --false-alarm --reason 'a wrong sensor'",
            "nodeguard incidents withdraw gpu-7/nic-hot --reason 'the fan had failed'",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", metavar=" | ".join(verb for verb, *_ in _VERBS), required=True)
    for verb, summary, about in _VERBS:
        part = verbs.add_parser(
            verb,
            help=summary,
            description=about,
            epilog="Exit codes: 0 done, requested, or the fault is over; 3 refused, or not delivered.",
        )
        part.add_argument("name", metavar="NAME", help="name or unique prefix, NODE, or NODE/CHECK")
        if verb == "clear":
            part.add_argument("--no-wait", action="store_true", help="do not wait for the agent's answer")
            part.add_argument("--false-alarm", action="store_true", help=_FALSE_ALARM)
            part.add_argument("--reason", metavar="TEXT", default="", help="why it is a false alarm")
        if verb == "withdraw":
            part.add_argument("--reason", metavar="TEXT", default="", help="why it is no false alarm")
        add_by(part)
        add_output(part, "text", "json", "yaml")
        add_socket(part)
    return parser


# Seconds to wait for the agent's answer: it gets the request with the reply to its next heartbeat, and
# answers with the one after. Seconds until the aggregator that answers knows the decision.
ANSWER_TIMEOUT = 40.0
DECISION_TIMEOUT = 3.0
_POLL_INTERVAL = 0.5

# States of an incident without a finding: there is nothing to clear.
_ENDING = frozenset({IncidentState.RECOVERING, IncidentState.RESOLVED})


def _clear(client: AggregatorClient, target: str, decision: IncidentAction, output: str) -> None:
    """Have an incident cleared, and print the agent's answer. Raises UsageError where it refuses."""
    require_fit(ClearOutput("", None, ""), output)
    before = client.get(target, IncidentView)
    done = client.post(target, decision)
    is_asked = before.node and before.state not in _ENDING
    view = _wait_for_answer(client, target, before) if is_asked else None
    result = view.clear_result if view is not None else None
    message = printable(view.clear_message) if view is not None else ""
    recorded = "recorded as a false alarm, but " if decision.false_alarm else ""
    # A fault that ended meanwhile is what was asked for.
    if result == ClearAnswer.REFUSED and view is not None and view.state not in _ENDING:
        raise UsageError(f"{before.name} is {recorded}not cleared: {message}")
    if result == ClearAnswer.PARTLY:
        raise UsageError(f"{before.name} is {recorded}only partly cleared: {message}")
    text = done.message
    if result in {ClearAnswer.DONE, ClearAnswer.REFUSED} and message:
        text = f"{before.name} is recorded as a false alarm; {message}" if decision.false_alarm else message
    print_output(document_or_text(ClearOutput(done.message, result, message), output, lambda: text))


def _wait_for_answer(client: AggregatorClient, target: str, before: IncidentView) -> IncidentView | None:
    """Return the incident once the agent has answered; None where it does not answer in time."""
    began = time.monotonic()
    with progress("waiting for the node's agent", ANSWER_TIMEOUT):
        while (waited := time.monotonic() - began) < ANSWER_TIMEOUT:
            view = client.get(target, IncidentView)
            is_recorded = view.clear_request != before.clear_request
            if is_recorded and view.clear_result != ClearAnswer.WAITING:
                return view
            if not is_recorded and waited >= DECISION_TIMEOUT:
                return None
            time.sleep(_POLL_INTERVAL)
    return None
