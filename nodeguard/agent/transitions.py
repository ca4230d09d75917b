"""What changed between two verdicts, as lines of the agent's log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nodeguard.local.json_log import LogLine
from nodeguard.model.finding import Action, DataStatus, Finding, Health, Verdict

__all__ = ["LogLine", "LoggedFinding", "LoggedVerdict", "logged_verdict", "transitions"]


class LoggedFinding(Struct, frozen=True):
    """The fields of a Finding that the log has."""

    check: str
    target: str
    part: str
    health: Health
    knowledge: DataStatus
    action: Action
    message: str


class LoggedVerdict(Struct, frozen=True):
    """The fields of a Verdict that the log has. health: None if nothing could be evaluated."""

    health: Health | None
    knowledge: DataStatus
    findings: tuple[LoggedFinding, ...] = ()


def logged_verdict(verdict: Verdict) -> LoggedVerdict:
    """Return the fields of a verdict that the log has."""
    findings = tuple(map(_logged_finding, verdict.findings))
    return LoggedVerdict(verdict.known_health, verdict.data_status, findings)


def transitions(before: LoggedVerdict | None, after: LoggedVerdict) -> Iterator[LogLine]:
    """Yield a line for each finding that is new, changed or over, and for a change of the node's health.

    before: the verdict that the log shows, None at the start, when everything is new.
    """
    earlier = {(finding.check, finding.target): finding for finding in before.findings} if before else {}
    present = {(finding.check, finding.target): finding for finding in after.findings}
    for key, finding in present.items():
        old = earlier.get(key)
        if old is None:
            yield _line("finding", finding)
        elif (old.health, old.knowledge, old.action) != (finding.health, finding.knowledge, finding.action):
            yield _line("finding changed", finding)
    for key, finding in earlier.items():
        if key not in present:
            yield _line("finding over", finding)
    if before is None or (before.health, before.knowledge) != (after.health, after.knowledge):
        health = after.health or DataStatus.UNKNOWN
        yield {"event": "node", "health": health.value, "data_status": after.knowledge.value}


def _logged_finding(finding: Finding) -> LoggedFinding:
    return LoggedFinding(
        finding.check,
        finding.target,
        finding.component,
        finding.health,
        finding.data_status,
        finding.action,
        finding.message,
    )


def _line(event: str, finding: LoggedFinding) -> LogLine:
    return {
        "event": event,
        "check": finding.check,
        "target": finding.target,
        "component": finding.part,
        "health": finding.health.value,
        "data_status": finding.knowledge.value,
        "action": finding.action.value,
        "message": finding.message,
    }
