"""The log of an agent's verdicts: findings that are raised, changed or resolved, and the node's health."""

from __future__ import annotations

import logging

from msgspec import Struct, to_builtins

from nodeguard.model.finding import Action, DataStatus, Health, Verdict
from nodeguard.model.projection import project

logger = logging.getLogger(__name__)


class LoggedFinding(Struct, frozen=True):
    """The fields of a Finding that the log has."""

    check: str
    target: str
    component: str
    health: Health
    data_status: DataStatus
    action: Action
    message: str


class LoggedVerdict(Struct, frozen=True):
    """The fields of a Verdict that the log has. health: None if nothing could be evaluated."""

    health: Health | None
    data_status: DataStatus
    findings: tuple[LoggedFinding, ...] = ()


def logged_verdict(verdict: Verdict) -> LoggedVerdict:
    """Return the fields of a verdict that the log has."""
    findings = tuple(project(LoggedFinding, finding) for finding in verdict.findings)
    return LoggedVerdict(verdict.known_health, verdict.data_status, findings)


def raised_findings(before: LoggedVerdict | None, after: LoggedVerdict) -> tuple[LoggedFinding, ...]:
    """Return the findings that an earlier verdict does not have. before: None at the start."""
    earlier = _by_key(before)
    return tuple(finding for key, finding in _by_key(after).items() if key not in earlier)


def log_transitions(before: LoggedVerdict | None, after: LoggedVerdict) -> bool:
    """Log each finding that is raised, changed or resolved, and a change of the node's health.

    Return whether there was any. before: the verdict that the log shows, None at the start, when everything
    is new. These are changes of state, so their level is `info`; the severity is the field `health`.
    """
    earlier, present = _by_key(before), _by_key(after)
    changes = [("finding raised", _fields(finding)) for finding in raised_findings(before, after)]
    for key, finding in present.items():
        old = earlier.get(key)
        if old is not None and _severity(old) != _severity(finding):
            changes.append(("finding changed", _fields(finding)))
    changes += [("finding resolved", _fields(earlier[key])) for key in earlier if key not in present]
    if before is None or (before.health, before.data_status) != (after.health, after.data_status):
        health = after.health or DataStatus.UNKNOWN
        changes.append(
            ("node health changed", {"health": health.value, "data_status": after.data_status.value})
        )
    for message, fields in changes:
        logger.info(message, extra=fields)
    return bool(changes)


def _by_key(verdict: LoggedVerdict | None) -> dict[tuple[str, str], LoggedFinding]:
    """Return the findings of a verdict by check and target."""
    return {(finding.check, finding.target): finding for finding in verdict.findings} if verdict else {}


def _severity(finding: LoggedFinding) -> tuple[Health, DataStatus, Action]:
    return finding.health, finding.data_status, finding.action


def _fields(finding: LoggedFinding) -> dict[str, str]:
    fields: dict[str, str] = to_builtins(finding)
    del fields["component"]
    return fields | {"summary": fields.pop("message")}
