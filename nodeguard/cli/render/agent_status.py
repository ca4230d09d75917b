"""The status of the agent on this machine, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Literal

from msgspec import Struct

from nodeguard.agent.control import AgentStatus
from nodeguard.cli.render.conclusion import conclusion
from nodeguard.cli.render.terminal import format_time
from nodeguard.cli.render.verdict import VerdictText, verdict_view
from nodeguard.cli.render.verdict_json import FindingOutput, HealthOutput, finding_output
from nodeguard.cli.scope import verdict_data_status
from nodeguard.fleet_api.text.wording import count_noun, format_age
from nodeguard.fleet_api.view import Field, Section, View, badge_heading
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.policy import StalePolicy
from nodeguard.model.target import NODE, target_label


class DetachedOutput(Struct, frozen=True):
    """GPUs that are detached. target: `node` for all of them. until: RFC 3339."""

    target: str
    until: str


class EndpointOutput(Struct, frozen=True):
    """An aggregator. acknowledged_at: RFC 3339 time of its last acknowledgement, empty for never. problem:
    why it did not acknowledge the latest message, empty if it did.
    """

    endpoint: str
    acknowledged_at: str
    problem: str = ""


class InjectionOutput(Struct, frozen=True):
    """A fault that is injected. by: the operator. since, until: RFC 3339."""

    id: str
    check: str
    target: str
    health: Health
    by: str
    since: str
    until: str


class AgentStatusOutput(Struct, frozen=True):
    """Output of nodeguard status --agent -o json.

    at: RFC 3339. health, data_status: `unknown` before the first evaluation. unread_sources: sources that
    have no reading yet. spooled_transitions: changes that no aggregator has acknowledged. state_error: why
    the agent's state is not on a disk, empty for no error. injected_faults: not among the findings.
    """

    version: Literal[1]
    node: str
    at: str
    agent_version: str
    health: HealthOutput
    data_status: DataStatus
    findings: tuple[FindingOutput, ...]
    unread_sources: tuple[str, ...]
    detached_gpus: tuple[DetachedOutput, ...]
    aggregators: tuple[EndpointOutput, ...]
    spooled_transitions: int
    state_error: str
    injected_faults: tuple[InjectionOutput, ...] = ()


def agent_status_output(status: AgentStatus) -> AgentStatusOutput:
    """Return the document of -o json and -o yaml."""
    verdict = status.verdict
    return AgentStatusOutput(
        version=1,
        node=status.node,
        at=rfc3339(status.at),
        agent_version=status.version,
        health=HealthOutput((verdict and verdict.known_health) or DataStatus.UNKNOWN),
        data_status=verdict_data_status(verdict) if verdict else DataStatus.UNKNOWN,
        findings=tuple(map(finding_output, verdict.findings)) if verdict else (),
        unread_sources=status.unread,
        detached_gpus=detached_output(status),
        aggregators=tuple(
            EndpointOutput(name, "" if wall is None else rfc3339(wall), status.problems.get(name, ""))
            for name, wall in status.acknowledged_at.items()
        ),
        spooled_transitions=status.spooled,
        state_error=status.state_error,
        injected_faults=injection_output(status),
    )


def injection_output(status: AgentStatus) -> tuple[InjectionOutput, ...]:
    """Return the faults that are injected, the oldest first."""
    return tuple(
        InjectionOutput(
            item.id,
            item.finding.check,
            item.finding.target,
            item.finding.health,
            item.by,
            rfc3339(item.finding.since),
            rfc3339(item.until),
        )
        for item in status.injections
    )


def detached_output(status: AgentStatus) -> tuple[DetachedOutput, ...]:
    """Return the GPUs that are detached from the agent."""
    return tuple(DetachedOutput(target, rfc3339(until)) for target, until in sorted(status.detached.items()))


def agent_status_view(status: AgentStatus) -> View:
    """Return the view."""
    if status.verdict is None:
        heading = badge_heading("unknown", "unknown", f"{status.node}: no evaluation yet")
        verdict = View((Section(heading),))
    else:
        instant = Instant(status.at, 0.0, status.boot_id)
        first_line = conclusion(status.node, status.verdict)
        verdict = verdict_view(VerdictText(first_line, status.verdict, instant, {}), quiet=True)
    return View((*verdict.sections, Section(None, tuple(_facts(status)))))


def detached_fields(status: AgentStatus) -> list[Field]:
    """Return a field for each GPU that is detached, and one if there is none."""
    lines = [
        Field("detached", f"{_gpus(target)} until {format_time(until)}")
        for target, until in sorted(status.detached.items())
    ]
    return lines or [Field("detached", "none: the agent reads all GPUs")]


def injection_fields(status: AgentStatus) -> list[Field]:
    """Return a field for each fault that is injected, and one if there is none."""
    lines = [
        Field(
            "injected",
            f"{item.finding.check} ({item.finding.health.value}) on {target_label(item.finding.target)} "
            f"until {format_time(item.until)}, by {item.by}; id {item.id}",
        )
        for item in status.injections
    ]
    return lines or [Field("injected", "none")]


# Seconds after which the fleet counts a node without a report as stale, by default.
_STALE = StalePolicy().after


def _facts(status: AgentStatus) -> Iterator[Field]:
    yield Field("agent", f"version {status.version}, as of {format_time(status.at)}")
    if status.unread:
        yield Field("not read", f"{', '.join(status.unread)}: no reading since the start")
    if status.detached:
        yield from detached_fields(status)
    if status.injections:
        yield from injection_fields(status)
    for name, wall in status.acknowledged_at.items():
        age = "never" if wall is None else format_age(status.at - wall)
        problem = f"; {status.problems[name]}" if name in status.problems else ""
        style = "warning" if problem else "dim"
        yield Field("aggregator", f"{name}: last acknowledgement {age}{problem}", name_style=style)
    if not status.acknowledged_at:
        yield Field("aggregator", "none: the agent does not report")
    elif status.acknowledged_at.keys() <= status.problems.keys():
        latest = max((wall for wall in status.acknowledged_at.values() if wall is not None), default=-inf)
        text = "no aggregator has acknowledged the latest one"
        if status.at - latest > _STALE:
            text = "no aggregator acknowledges them: the fleet does not know the state of this node"
        yield Field("reports", text, style="warning", name_style="warning")
    if status.spooled:
        yield Field("spooled", f"{count_noun(status.spooled, 'change')} without acknowledgement")
    if status.state_error:
        yield Field("state file", status.state_error)


def _gpus(target: str) -> str:
    return "all GPUs" if target == NODE else target_label(target)
