"""Drains as HTML: those that failed, wait, run, or would run. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.aggregator.pages.html import EMPTY, Html, command_element, element, join, link, node_path
from nodeguard.aggregator.pages.sections import table
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.fleet_api.schema.drain import DrainView
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.fleet_api.text.drain import pod_names, waiting_reason
from nodeguard.fleet_api.text.wording import api_time, count_noun, target_text
from nodeguard.judge.formatting import format_duration
from nodeguard.model.action import ActionState

_HEADERS = ("Node", "State", "Since", "Pods", "Reason")

# The states of drains that are not finished in their order, with their text and style.
_STATES = {
    DrainState.WAITS: ("waits", "suspect"),
    DrainState.RUNNING: ("evicts", "warning"),
    DrainState.ANNOUNCED: ("announced", "warning"),
    DrainState.WOULD_DRAIN: ("dry run", "dim"),
}

# How a drain ended with pods left, or maybe left.
_ENDS = {ActionState.FAILED: "failed", ActionState.UNKNOWN: "end not known"}


def drains_section(status: FleetStatus) -> Html:
    """Return the drains of `nodeguard status`, with those that need a person first; empty for none."""
    rows = [*_failed(status), *_unfinished(status)]
    if not rows:
        return EMPTY
    omitted = status.drains_omitted + status.failed_drains_omitted
    command = command_element("nodeguard get actions --kind drain")
    more = element("p", f"and {count_noun(omitted, 'more drain')}: ", command, class_="more")
    listed = table(_HEADERS, rows, "list drains")
    return element("section", element("h2", "Drains"), listed, more if omitted else EMPTY)


def _failed(status: FleetStatus) -> Iterator[tuple[Html, ...]]:
    for drain in status.failed_drains:
        yield (
            _node(drain.node),
            element("b", _ENDS.get(drain.state, drain.state.value), class_="fatal"),
            join((format_duration(drain.changed_age),)),
            join((f"{drain.carried_out} of {count_noun(drain.parts, 'pod')} gone",)),
            join((drain.message,)),
        )


def _unfinished(status: FleetStatus) -> Iterator[tuple[Html, ...]]:
    order = list(_STATES)
    for drain in sorted(status.drains, key=lambda drain: order.index(DrainState(drain.state))):
        text, style = _STATES[DrainState(drain.state)]
        target = element("span", target_text(drain.resource), class_="target") if drain.resource else EMPTY
        reason = _reason(drain)
        yield (
            join((_node(drain.node), target)),
            element("b", text, class_=style),
            join((format_duration(drain.age),)),
            join((_pods(drain),)),
            join((reason,)),
        )


def _pods(drain: DrainView) -> str:
    if not drain.pods:
        return ""
    left = f"; {drain.left} not gone" if drain.left is not None else ""
    return f"{pod_names(drain.pods)}{left}"


def _reason(drain: DrainView) -> str:
    match drain.state:
        case DrainState.WOULD_DRAIN:
            return "; ".join(filter(None, ("the policy only observes", drain.reason, *drain.costs)))
        case DrainState.ANNOUNCED:
            return "; ".join((f"it evicts them at {api_time(drain.evict_at)} or later", *drain.costs))
    return waiting_reason(drain)


def _node(name: str) -> Html:
    return link(node_path(name), name, class_="name")
