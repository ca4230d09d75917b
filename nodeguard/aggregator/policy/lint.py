"""What a policy may say, and a person may not have meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from nodeguard.aggregator.policy.units import format_share
from nodeguard.config.field_path import FieldPath
from nodeguard.config.yaml_document import ConfigError, YamlDocument
from nodeguard.model.finding import Health
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Mode, ModeRule, Policy

# Shares beyond which a budget no longer protects: a fifth of the fleet, and half of all nodes silent.
_LARGE_FLEET, _LATE_FREEZE = 0.20, 0.50

# Seconds of three heartbeats: one may be late, and one lost.
_HASTY = 30.0

# What a check has to say for a mark.
MARK_HEALTH = {Mark.QUARANTINE: Health.FATAL, Mark.SUSPECT: Health.SUSPECT}


def lint_policy(
    located: YamlDocument, policy: Policy, checks: Mapping[str, Health], now: float
) -> Iterator[ConfigError]:
    """What weakens safety, has no effect, or is over. See file.read."""
    yield from _weak(located, policy)
    yield from _unfitting(located, policy, checks)
    yield from _idle(located, policy, checks)
    yield from _silences(located, policy, now)
    yield from _placed(located, policy)


def _weak(located: YamlDocument, policy: Policy) -> Iterator[ConfigError]:
    wide = "every check, those that come with the next version, too, marks nodes from the start"
    ones = "enforce the checks that have shown themselves right"
    if policy.mode == Mode.ENFORCE:
        yield located.error(("mode",), wide, ones)
    for at, rule in enumerate(policy.modes):
        if rule.mode == Mode.ENFORCE and any(not one.strip("*") for one in rule.checks):
            yield located.error(_named(located, ("modes", at)), wide, ones)
    if policy.budget.fleet > _LARGE_FLEET:
        problem = f"a wrong check may take out {format_share(policy.budget.fleet)} of the fleet"
        remedy = f"write at most {format_share(_LARGE_FLEET)}"
        yield located.error(("budget", "fleet"), problem, remedy)
    if policy.stale.freeze > _LATE_FREEZE:
        problem = (
            f"nodes are marked on while up to {format_share(policy.stale.freeze)} of the fleet are not heard"
        )
        remedy = f"write at most {format_share(_LATE_FREEZE)}"
        yield located.error(("silent", "freeze"), problem, remedy)
    if policy.stale.after < _HASTY:
        problem = f"{policy.stale.after:.0f}s is too short: agents say something every 10s, and may be slow"
        yield located.error(("silent", "after"), problem, f"write at least {_HASTY:.0f}s")
    enforced = policy.mode == Mode.ENFORCE or any(rule.mode == Mode.ENFORCE for rule in policy.modes)
    if enforced and not policy.marks.taint and not policy.marks.cordon:
        problem = "without `taint` and `cordon` a mark keeps no work off a node"
        yield located.error(("marks",), problem, "write `taint: true`, or observe")


def _named(located: YamlDocument, place: FieldPath) -> FieldPath:
    """Where a row names its checks."""
    return next((at for name in ("check", "checks") if (at := (*place, name)) in located.lines), place)


def _unfitting(located: YamlDocument, policy: Policy, checks: Mapping[str, Health]) -> Iterator[ConfigError]:
    rows: list[tuple[FieldPath, tuple[str, ...]]] = [
        *((("modes", at), one.checks) for at, one in enumerate(policy.modes)),
        *((("budget", "checks", at), one.checks) for at, one in enumerate(policy.budget.check_overrides)),
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


def _idle(located: YamlDocument, policy: Policy, checks: Mapping[str, Health]) -> Iterator[ConfigError]:
    """Rules that enforce what none of their checks ever says."""
    for at, rule in enumerate(policy.modes):
        fitting = [health for check, health in checks.items() if _fits(rule, check)]
        asked = [MARK_HEALTH[mark] for mark in rule.marks]
        if rule.mode == Mode.ENFORCE and fitting and not any(health in asked for health in fitting):
            problem = f"enforces nothing: none of its checks is {' or '.join(asked)}"
            remedy = "`quarantine` is for fatal checks, `suspect` for suspect ones: see `nodeguard checks`"
            yield located.error(_named(located, ("modes", at)), problem, remedy)


def _fits(rule: ModeRule, check: str) -> bool:
    return any(fnmatchcase(check, pattern) for pattern in rule.checks)


def _silences(located: YamlDocument, policy: Policy, now: float) -> Iterator[ConfigError]:
    for at, one in enumerate(policy.silences):
        if 0 < one.until <= now:
            yield located.error(("silences", at, "until"), "is over", "remove the silence, or move its end")
        elif not one.until and one.node == "*" and "*" in one.checks:
            problem = "nobody is ever told of anything"
            yield located.error(("silences", at), problem, "add `check`, `node` or `until`")


def _placed(located: YamlDocument, policy: Policy) -> Iterator[ConfigError]:
    """Label keys of views that places tell of."""
    placed = {view for place in policy.locations for view in place.paths}
    for view in policy.topologies:
        if view.name in placed:
            problem = "has no effect: `places` say where nodes are in this view"
            yield located.error(("views", view.name), problem, "remove one of the two")
