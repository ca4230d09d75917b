"""What changed from one verdict to the next, as lines of a log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nodeguard.model.finding import Action, DataStatus, Finding, Health, Verdict

# A line of the log: fields by name.
LogLine = dict[str, object]


class LoggedFinding(Struct, frozen=True):
    """What a log says of a finding; fields as in Finding."""

    check: str
    target: str
    part: str
    health: Health
    knowledge: DataStatus
    action: Action
    message: str


class LoggedVerdict(Struct, frozen=True):
    """What a log has said of a node: its health, None where nothing could be judged, and its findings."""

    health: Health | None
    knowledge: DataStatus
    findings: tuple[LoggedFinding, ...] = ()


def logged_verdict(verdict: Verdict) -> LoggedVerdict:
    """What is to be said of a verdict."""
    return LoggedVerdict(verdict.known_health, verdict.data_status, tuple(map(_brief, verdict.findings)))


def transitions(before: LoggedVerdict | None, after: LoggedVerdict) -> Iterator[LogLine]:
    """A line for each finding that is new, changed or over, and one for the node where its health changed.

    before: what was told last, None at the start, where everything is new.
    """
    known = {(one.check, one.target): one for one in before.findings} if before else {}
    now = {(one.check, one.target): one for one in after.findings}
    for key, one in now.items():
        old = known.get(key)
        if old is None:
            yield _line("finding", one)
        elif (old.health, old.knowledge, old.action) != (one.health, one.knowledge, one.action):
            yield _line("finding changed", one)
    for key, one in known.items():
        if key not in now:
            yield _line("finding over", one)
    if before is None or (before.health, before.knowledge) != (after.health, after.knowledge):
        health = after.health or DataStatus.UNKNOWN
        yield {"event": "node", "health": health.value, "knowledge": after.knowledge.value}


def _brief(one: Finding) -> LoggedFinding:
    return LoggedFinding(
        one.check, one.target, one.component, one.health, one.data_status, one.action, one.message
    )


def _line(event: str, one: LoggedFinding) -> LogLine:
    return {
        "event": event,
        "check": one.check,
        "target": one.target,
        "part": one.part,
        "health": one.health.value,
        "knowledge": one.knowledge.value,
        "action": one.action.value,
        "message": one.message,
    }
