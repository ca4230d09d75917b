"""Warnings for a valid policy: settings that weaken safety, have no effect, or have expired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import UNSET

from nodeguard.config.amounts import format_share
from nodeguard.config.error_messages import suggestion
from nodeguard.config.errors import ConfigError, FieldPath
from nodeguard.config.yaml_document import YamlDocument
from nodeguard.fleet.policy_rules import drain_when, drained_checks, mode_of
from nodeguard.model.drain import DrainMode, DrainRule, DrainWhen
from nodeguard.model.finding import Health
from nodeguard.model.mark import Mark
from nodeguard.model.policy import CheckOverride, Mode, ModeRule, Policy, check_patterns

# Shares above which a budget no longer protects: a fifth of the fleet, and half of all nodes stale.
_LARGE_FLEET, _LATE_FREEZE = 0.20, 0.50

# Seconds of three heartbeats: one may be late, and one lost.
_MIN_STALE_AFTER = 30.0


def lint_policy(
    located: YamlDocument, policy: Policy, checks: Mapping[str, Health], now: float, *, has_pods: bool
) -> Iterator[ConfigError]:
    """Yield the warnings for a policy. See policy_file.read_policy for the parameters."""
    yield from _weak(located, policy)
    yield from _unmatched(located, policy, checks)
    yield from _without_effect(located, policy, checks)
    yield from _overridden(located, policy, checks)
    yield from _silences(located, policy, now)
    yield from _topologies(located, policy)
    yield from _drain(located, policy, checks, has_pods=has_pods)


def _weak(located: YamlDocument, policy: Policy) -> Iterator[ConfigError]:
    problem = "every check marks nodes from the start, also new checks of the next version"
    remedy = "enforce the checks that have proven to be right"
    if policy.mode == Mode.ENFORCE:
        yield located.error(("defaultMode",), problem, remedy)
    for at, rule in enumerate(policy.modes):
        if rule.mode == Mode.ENFORCE and any(not pattern.strip("*") for pattern in check_patterns(rule)):
            yield located.error(_checks_field(located, ("modeRules", at)), problem, remedy)
    if policy.budget.fleet > _LARGE_FLEET:
        problem = f"a faulty check may take out {format_share(policy.budget.fleet)} of the fleet"
        remedy = f"write at most {format_share(_LARGE_FLEET)}"
        yield located.error(("budget", "fleet"), problem, remedy)
    if policy.stale.freeze > _LATE_FREEZE:
        share = format_share(policy.stale.freeze)
        problem = f"new marks are set while up to {share} of the fleet are stale"
        remedy = f"write at most {format_share(_LATE_FREEZE)}"
        yield located.error(("staleNodes", "freezeAbove"), problem, remedy)
    if policy.stale.after < _MIN_STALE_AFTER:
        after = f"{policy.stale.after:.0f}s"
        problem = f"{after} is too short: agents send a heartbeat every 10s, and may be slow"
        yield located.error(("staleNodes", "after"), problem, f"write at least {_MIN_STALE_AFTER:.0f}s")
    enforced = policy.mode == Mode.ENFORCE or any(rule.mode == Mode.ENFORCE for rule in policy.modes)
    if enforced and not policy.marks.taint and not policy.marks.cordon:
        problem = "without `taint` and `cordon` a mark keeps no work off a node"
        yield located.error(("markWith",), problem, "write `taint: true`, or use observe mode")
    elif enforced and not policy.marks.taint:
        problem = "without `taint` a suspect mark and the mark of a domain keep no work off a node"
        yield located.error(("markWith", "taint"), problem, "write `taint: true`")


def _checks_field(located: YamlDocument, place: FieldPath) -> FieldPath:
    """Return the field of a row that names its checks."""
    return next((at for name in ("check", "checks") if (at := (*place, name)) in located.lines), place)


def unmatched_patterns(policy: Policy, checks: Iterable[str]) -> Iterator[tuple[FieldPath, int, str]]:
    """Yield each check or pattern that matches none of some checks: its row, its place there, and itself.

    `*` matches all, however many there are.
    """
    rows: list[tuple[FieldPath, tuple[str, ...]]] = [
        *((("modeRules", at), check_patterns(rule)) for at, rule in enumerate(policy.modes)),
        *(
            (("budget", "checkOverrides", at), check_patterns(limit))
            for at, limit in enumerate(policy.budget.check_overrides)
        ),
        *((("holds", at), check_patterns(hold)) for at, hold in enumerate(policy.holds)),
        *((("silences", at), silence.patterns) for at, silence in enumerate(policy.silences)),
        *((("drain", "rules", at), check_patterns(rule)) for at, rule in enumerate(policy.drain.rules)),
        (("injection",), policy.injection.checks),
        *(
            (("diagnosis", "faultClasses", name), change.checks)
            for name, change in policy.diagnosis.fault_classes.items()
            if change.checks is not UNSET
        ),
    ]
    names = tuple(checks)
    for place, patterns in rows:
        for at, pattern in enumerate(patterns):
            if pattern != "*" and not any(fnmatchcase(check, pattern) for check in names):
                yield place, at, pattern


def _unmatched(located: YamlDocument, policy: Policy, checks: Mapping[str, Health]) -> Iterator[ConfigError]:
    for place, at, pattern in unmatched_patterns(policy, checks):
        field = _checks_field(located, place)
        position = field if field[-1] == "check" else (*field, at)
        remedy = "see `nodeguard checks`; add a folder with your own checks by --checks"
        problem = f"'{pattern}' matches no check{suggestion(pattern, checks)}"
        yield located.error(position, problem, remedy)


def _without_effect(
    located: YamlDocument, policy: Policy, checks: Mapping[str, Health]
) -> Iterator[ConfigError]:
    """Yield warnings for rules that enforce a mark that none of their checks requests."""
    for at, rule in enumerate(policy.modes):
        matching = [health for check, health in checks.items() if _matches(rule, check)]
        wanted = [health for mark in rule.marks if (health := Mark(mark).kind.health)]
        if rule.mode == Mode.ENFORCE and matching and not any(health in wanted for health in matching):
            problem = f"enforces nothing: none of its checks is {' or '.join(wanted)}"
            remedy = "`quarantine` is for fatal checks, `suspect` for suspect ones: see `nodeguard checks`"
            yield located.error(_checks_field(located, ("modeRules", at)), problem, remedy)


def _overridden(located: YamlDocument, policy: Policy, checks: Mapping[str, Health]) -> Iterator[ConfigError]:
    """Yield warnings for rows without effect, because other rows apply to all checks that they match."""
    for at, rule in enumerate(policy.modes):
        matching = [(check, Mark(mark)) for check in checks if _matches(rule, check) for mark in rule.marks]
        if matching and all(mode_of(policy, check, mark) != rule.mode for check, mark in matching):
            problem = "has no effect: later rules match each of its checks, and the last match applies"
            yield located.error(_checks_field(located, ("modeRules", at)), problem, "move it to the end")
    overrides = policy.budget.check_overrides
    for at, override in enumerate(overrides):
        names = [check for check in checks if _matches(override, check)]
        if names and all(any(_matches(other, check) for other in overrides[:at]) for check in names):
            problem = "has no effect: earlier rows match each of its checks, and the first match applies"
            field = _checks_field(located, ("budget", "checkOverrides", at))
            yield located.error(field, problem, "move it to the beginning")


def _matches(row: ModeRule | CheckOverride | DrainRule, check: str) -> bool:
    return any(fnmatchcase(check, pattern) for pattern in check_patterns(row))


def _silences(located: YamlDocument, policy: Policy, now: float) -> Iterator[ConfigError]:
    for at, silence in enumerate(policy.silences):
        if silence.end <= now:
            yield located.error(("silences", at, "until"), "has expired", "remove the silence, or extend it")
        elif not silence.until and silence.node == "*" and "*" in silence.patterns:
            problem = "no incident or Event is ever written"
            yield located.error(("silences", at), problem, "add `check`, `node` or `until`")


def _topologies(located: YamlDocument, policy: Policy) -> Iterator[ConfigError]:
    """Yield warnings for label keys of topologies that node locations define."""
    placed = {topology for location in policy.locations for topology in location.paths}
    for topology in policy.topologies:
        if topology.name in placed:
            problem = "has no effect: `nodeLocations` define this topology"
            yield located.error(("topologies", topology.name), problem, "remove one of the two")


def _drain(
    located: YamlDocument, policy: Policy, checks: Mapping[str, Health], *, has_pods: bool
) -> Iterator[ConfigError]:
    """Yield warnings for drains that evict nothing, or that evict for every check."""
    mode, rules = policy.drain.mode, policy.drain.rules
    evicting = [at for at, rule in enumerate(rules) if rule.when != DrainWhen.WHEN_IDLE]
    drain = ("drain", "mode") if ("drain", "mode") in located.lines else ("drain",)
    if mode == DrainMode.DISABLED:
        if evicting:
            problem = "no pod is evicted while `mode` is `disabled`"
            yield located.error(drain, problem, "write `mode: observe`, or remove the rules")
        return
    if not has_pods:
        problem = "has no effect: without Kubernetes there are no pods to evict"
        yield located.error(drain, problem, "write `mode: disabled`, and drain by your scheduler")
    elif not evicting:
        problem = "evicts nothing: no rule is `immediately` or `deadline`"
        yield located.error(drain, problem, "add a rule to `rules`")
    elif not drained_checks(policy, checks) and any(_drains(policy, checks, at) for at in evicting):
        problem = "evicts nothing: the quarantine of none of its checks is enforced"
        yield located.error(drain, problem, "enforce `quarantine` for these checks in `modeRules` first")
    for at, rule in enumerate(rules):
        place = _checks_field(located, ("drain", "rules", at))
        matching = [check for check in checks if _matches(rule, check)]
        is_evicting = at in evicting
        if matching and all(drain_when(policy, check) != rule.when for check in matching):
            problem = "has no effect: later rules match each of its checks, and the last match applies"
            yield located.error(place, problem, "move it to the end")
        elif is_evicting and matching and not _drains(policy, checks, at):
            problem = "evicts nothing: none of its checks is fatal, which a quarantine needs"
            yield located.error(place, problem, "name fatal checks: see `nodeguard checks`")
        elif is_evicting and mode == DrainMode.ENFORCE and "*" in check_patterns(rule):
            problem = "every fatal check evicts pods, also new checks of the next version"
            yield located.error(place, problem, "name the checks that have proven to be right")


def _drains(policy: Policy, checks: Mapping[str, Health], at: int) -> bool:
    """Return whether a rule for drains matches a fatal check."""
    rule = policy.drain.rules[at]
    return any(health == Health.FATAL and _matches(rule, check) for check, health in checks.items())
