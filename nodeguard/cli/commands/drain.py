"""nodeguard drain: evict the pods that use the faulty hardware of a quarantined node, or show these."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection
from typing import TypeVar

from nodeguard.aggregator.api.requests import DrainRequest, DrainResult
from nodeguard.cli.aggregator_client import (
    AggregatorClient,
    NotFoundError,
    RetryLaterError,
    UnreachableError,
    add_socket,
    quote_name,
)
from nodeguard.cli.commands.describe import node_not_found
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.render.terminal import format_view
from nodeguard.cli.streams import document_or_text, print_error, print_output, require_fit
from nodeguard.cli.usage import OK, ArgumentParser, UsageError
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.fleet_api.schema.action import ActionList, ActionView
from nodeguard.fleet_api.schema.drain import DrainPreview
from nodeguard.fleet_api.text.drain import leaving_pods, preview_view
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.action import ActionState

# Seconds between two looks at the drains.
_POLL_INTERVAL = 1.0

# Seconds in which the API server of Kubernetes must answer the aggregator.
_ANSWER_WITHIN = 120.0

_Answer = TypeVar("_Answer")


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = AggregatorClient(options)
    target = f"nodes/{quote_name(options.name)}/drain"
    if not options.dry_run:
        require_fit(DrainResult("", ()), options.output)
    try:
        preview = _answer(lambda: client.get(target, DrainPreview, reads_cluster=True))
    except NotFoundError:
        raise node_not_found(client, options.name) from None
    if options.dry_run:
        print_output(document_or_text(preview, options.output, lambda: format_view(preview_view(preview))))
        return OK
    print_error(format_view(preview_view(preview, is_dry_run=False)))
    if not options.yes:
        _confirm(preview)
    result = _answer(lambda: client.request(target, DrainRequest(options.by), DrainResult))
    if options.wait:
        print_error(result.message)
        result = DrainResult(_wait(client, preview.node, result.actions), result.actions)
    print_output(document_or_text(result, options.output, lambda: result.message))
    return OK


def _answer(ask: Callable[[], _Answer]) -> _Answer:
    """Return the answer to a request, repeated while the API server does not answer. Raises UsageError."""
    printed, end = "", time.monotonic() + _ANSWER_WITHIN
    while True:
        try:
            return ask()
        except RetryLaterError as error:
            if time.monotonic() + error.retry_after >= end:
                raise UsageError(f"nothing is evicted: {error}") from None
            if printed != str(error):
                print_error(f"waits for the API server: {error}")
            printed = str(error)
            time.sleep(error.retry_after)


def _confirm(preview: DrainPreview) -> None:
    """Ask at the terminal. Raises UsageError without a terminal, where nothing may leave, or where the answer
    is not yes.
    """
    staying = [drain.reason for drain in preview.drains if drain.state == DrainState.WAITS]
    if preview.reason or staying:
        raise UsageError(f"nothing is evicted: {preview.reason or staying[0]}")
    if not any(drain.pods for drain in preview.drains):
        raise UsageError(f"nothing is evicted: no pod uses the faulty hardware of {preview.node}")
    evicted = leaving_pods(preview.node, preview.drains)
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"this evicts {evicted}: add --yes without a terminal")
    scope = " of each faulty GPU" if len(preview.drains) > 1 else ""
    print_error(f"This evicts {evicted}, all or none{scope}. Type yes to continue:")
    if sys.stdin.readline().strip().lower() != "yes":
        raise UsageError("nothing was changed")


def _wait(client: AggregatorClient, node: str, names: Collection[str]) -> str:
    """Print the progress of drains until all have ended; returns how. Raises UsageError if one has left
    pods.
    """
    printed = dict[str, str]()
    see = f"nodeguard describe node {node}"
    try:
        while True:
            listed = client.get(f"actions?node={quote_name(node)}", ActionList).actions
            drains = [action for action in listed if action.name in names]
            for drain in drains:
                text = f"{drain.name}: {_progress(drain)}"
                if printed.get(drain.name) != text:
                    print_error(text)
                printed[drain.name] = text
            if len(drains) < len(names):
                raise UsageError(f"a drain is not listed any more: {see} shows what is recorded")
            if all(drain.state.is_finished for drain in drains):
                break
            time.sleep(_POLL_INTERVAL)
    except (KeyboardInterrupt, UnreachableError):
        print_error(f"the drain goes on: {see} shows its progress")
        raise
    left = [drain for drain in drains if drain.state != ActionState.SUCCEEDED]
    if left:
        raise UsageError(f"not drained: {left[0].message or left[0].state.lower()}: see {see}")
    return "; ".join(drain.message for drain in drains)


def _progress(drain: ActionView) -> str:
    pods = count_noun(drain.parts, "pod")
    text = f"{drain.state.lower()}, {drain.carried_out} of {pods} gone"
    return f"{text}: {drain.message}" if drain.message else text


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard drain",
        description="Evict the pods that use the faulty hardware of a quarantined node, or show these.",
        examples=("nodeguard drain node gpu-7 --dry-run", "nodeguard drain node gpu-7 --wait"),
        epilog="Exit codes: 0 shown, requested, or with --wait all pods evicted; 3 no such node, refused, "
        "not all pods evicted, or the aggregator did not answer.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="node", required=True)
    part = kinds.add_parser(
        "node",
        help="the pods that use the faulty hardware of a quarantined node",
        description="Evict the pods that use the faulty hardware of a quarantined node: all of them or none. "
        "Rules and limits of the policy do not count, disruption budgets, holds and pauses do. It needs "
        "drain.mode: observe or enforce.",
    )
    part.add_argument("name", metavar="NAME", help="the node")
    part.add_argument("--dry-run", action="store_true", help="only show the pods, or why they stay")
    part.add_argument("-y", "--yes", action="store_true", help="do not ask")
    part.add_argument("--wait", action="store_true", help="print the progress, and return at the end")
    add_by(part)
    add_output(part, "text", "json", "yaml")
    add_socket(part)
    return parser
