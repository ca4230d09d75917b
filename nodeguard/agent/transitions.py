"""What changed from one verdict to the next, as lines of a log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.finding import Finding, Verdict

# A line of the log: fields by name.
Line = dict[str, object]


def transitions(before: Verdict | None, after: Verdict) -> Iterator[Line]:
    """A line for each finding that is new, changed or over, and one for the node where its health changed.

    before: the verdict of the round before, None at the start, where everything is new.
    """
    known = {_key(one): one for one in before.findings} if before else {}
    now = {_key(one): one for one in after.findings}
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
        yield {"event": "node", "health": after.health.value, "knowledge": after.knowledge.value}


def _key(one: Finding) -> tuple[str, str]:
    return one.check, one.target


def _line(event: str, one: Finding) -> Line:
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
