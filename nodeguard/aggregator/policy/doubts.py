"""What a policy may say, and a person may not have meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from nodeguard.aggregator.policy.amounts import as_share
from nodeguard.catalog.forms import Place
from nodeguard.catalog.located import CatalogueError, Located
from nodeguard.model.finding import Health
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Mode, ModeRule, Policy

# Shares beyond which a budget no longer protects: a fifth of the fleet, and half of all nodes silent.
_LARGE_FLEET, _LATE_FREEZE = 0.20, 0.50

# Seconds of three heartbeats: one may be late, and one lost.
_HASTY = 30.0

# What a check has to say for a mark.
MARKED = {Mark.QUARANTINE: Health.FATAL, Mark.SUSPECT: Health.SUSPECT}


def doubts(
    located: Located, policy: Policy, checks: Mapping[str, Health], now: float
) -> Iterator[CatalogueError]:
    """What weakens safety, has no effect, or is over. See file.read."""
    yield from _weak(located, policy)
    yield from _unfitting(located, policy, checks)
    yield from _idle(located, policy, checks)
    yield from _silences(located, policy, now)
    yield from _placed(located, policy)


def _weak(located: Located, policy: Policy) -> Iterator[CatalogueError]:
    wide = "every check, those that come with the next version, too, marks nodes from the start"
    ones = "enforce the checks that have shown themselves right"
    if policy.mode == Mode.ENFORCE:
        yield located.error(("mode",), wide, ones)
    for at, rule in enumerate(policy.modes):
        if rule.mode == Mode.ENFORCE and any(not one.strip("*") for one in rule.checks):
            yield located.error(_named(located, ("modes", at)), wide, ones)
    if policy.budget.fleet > _LARGE_FLEET:
        problem = f"a wrong check may take out {as_share(policy.budget.fleet)} of the fleet"
        remedy = f"write at most {as_share(_LARGE_FLEET)}"
        yield located.error(("budget", "fleet"), problem, remedy)
    if policy.silent.freeze > _LATE_FREEZE:
        problem = (
            f"nodes are marked on while up to {as_share(policy.silent.freeze)} of the fleet are not heard"
        )
        remedy = f"write at most {as_share(_LATE_FREEZE)}"
        yield located.error(("silent", "freeze"), problem, remedy)
    if policy.silent.after < _HASTY:
        problem = f"{policy.silent.after:.0f}s is too short: agents say something every 10s, and may be slow"
        yield located.error(("silent", "after"), problem, f"write at least {_HASTY:.0f}s")
    enforced = policy.mode == Mode.ENFORCE or any(rule.mode == Mode.ENFORCE for rule in policy.modes)
    if enforced and not policy.marks.taint and not policy.marks.cordon:
        problem = "without `taint` and `cordon` a mark keeps no work off a node"
        yield located.error(("marks",), problem, "write `taint: true`, or observe")


def _named(located: Located, place: Place) -> Place:
    """Where a row names its checks."""
    return next((at for name in ("check", "checks") if (at := (*place, name)) in located.lines), place)


def _unfitting(located: Located, policy: Policy, checks: Mapping[str, Health]) -> Iterator[CatalogueError]:
    rows: list[tuple[Place, tuple[str, ...]]] = [
        *((("modes", at), one.checks) for at, one in enumerate(policy.modes)),
        *((("budget", "checks", at), one.checks) for at, one in enumerate(policy.budget.checks)),
        *((("holds", at), one.checks) for at, one in enumerate(policy.holds)),
        *((("silences", at), one.checks) for at, one in enumerate(policy.silences)),
    ]
    for place, patterns in rows:
        for at, pattern in enumerate(patterns):
            if not any(fnmatchcase(check, pattern) for check in checks):
                named = _named(located, place)
                here = named if named[-1] == "check" else (*named, at)
                remedy = "see `nodeguard checks`; name a folder of your own with --checks"
                yield located.error(here, f"'{pattern}' fits no check that is known", remedy)


def _idle(located: Located, policy: Policy, checks: Mapping[str, Health]) -> Iterator[CatalogueError]:
    """Rules that enforce what none of their checks ever says."""
    for at, rule in enumerate(policy.modes):
        fitting = [health for check, health in checks.items() if _fits(rule, check)]
        asked = [MARKED[mark] for mark in rule.marks]
        if rule.mode == Mode.ENFORCE and fitting and not any(health in asked for health in fitting):
            problem = f"enforces nothing: none of its checks is {' or '.join(asked)}"
            remedy = "`quarantine` is for fatal checks, `suspect` for suspect ones: see `nodeguard checks`"
            yield located.error(_named(located, ("modes", at)), problem, remedy)


def _fits(rule: ModeRule, check: str) -> bool:
    return any(fnmatchcase(check, pattern) for pattern in rule.checks)


def _silences(located: Located, policy: Policy, now: float) -> Iterator[CatalogueError]:
    for at, one in enumerate(policy.silences):
        if 0 < one.until <= now:
            yield located.error(("silences", at, "until"), "is over", "remove the silence, or move its end")
        elif not one.until and one.node == "*" and "*" in one.checks:
            problem = "nobody is ever told of anything"
            yield located.error(("silences", at), problem, "add `check`, `node` or `until`")


def _placed(located: Located, policy: Policy) -> Iterator[CatalogueError]:
    """Label keys of views that places tell of."""
    placed = {view for place in policy.places for view in place.paths}
    for view in policy.views:
        if view.name in placed:
            problem = "has no effect: `places` say where nodes are in this view"
            yield located.error(("views", view.name), problem, "remove one of the two")
