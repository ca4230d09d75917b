"""The effect of a policy as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeguard.config.amounts import format_share
from nodeguard.fleet.budget_limits import CONFIRMED_SHARE, fleet_limits
from nodeguard.fleet.policy_rules import drain_after, drained_checks, hold_on_check, mode_of
from nodeguard.fleet.state.topology.topologies import is_pattern
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.fleet_api.view import Field, Heading, Section, View
from nodeguard.judge.formatting import format_duration
from nodeguard.model.drain import DrainMode
from nodeguard.model.finding import Health
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import FINDING_MARKS, Mark
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    GracePeriods,
    Hold,
    Mode,
    NodeLocation,
    Policy,
    Silence,
    check_patterns,
)

if TYPE_CHECKING:
    from nodeguard.config.errors import ConfigError

# Checks that are listed by name.
_NAMED = 12


def enforced_checks(policy: Policy, checks: Mapping[str, Health]) -> dict[Mark, list[str]]:
    """Return the checks that set a mark, by mark. checks: health by id."""
    return {
        mark: [check for check in _of(mark, checks) if _enforces(policy, check, mark)]
        for mark in FINDING_MARKS
    }


def _of(mark: Mark, checks: Mapping[str, Health]) -> list[str]:
    return [check for check, health in checks.items() if health == mark.kind.health]


def _enforces(policy: Policy, check: str, mark: Mark) -> bool:
    return mode_of(policy, check, mark) == Mode.ENFORCE and hold_on_check(policy, check) is None


def policy_view(
    file: str,
    policy: Policy,
    checks: Mapping[str, Health],
    warnings: Sequence[ConfigError],
    count: int | None,
) -> View:
    """Return the view of a policy file. count: nodes of a fleet, None to show shares only."""
    result = f"ok, with {count_noun(len(warnings), 'warning')}" if warnings else "ok"
    heading = Heading(file, "strong", result, "warning" if warnings else "ok", separator=" - ")
    texts = (f"line {item.line}: {item.field}: {item.problem}: {item.remedy}" for item in warnings)
    problems = (Field("warning", text, name_style="warning") for text in texts)
    return View((Section(heading, (*_effects(policy, checks, count), *problems)),))


def _effects(policy: Policy, checks: Mapping[str, Health], count: int | None) -> Iterator[Field]:
    if policy.pause:
        yield Field("paused", "no new mark is set")
    yield from _marks(policy, checks)
    if policy.drain.mode != DrainMode.DISABLED:
        yield Field("drain", _drain(policy, checks, count))
    yield Field("budget", _budget(policy.budget, count))
    if policy.pools:
        pools = (f"{item.name} {_nodes(item.share or policy.budget.pool)}" for item in policy.pools)
        yield Field("pools", ", ".join(pools))
    yield Field("each check", _limits(policy.budget))
    yield Field("domains", _domains(policy, count))
    soak = policy.soak
    longer = f", longer each time up to {format_duration(soak.maximum)}" if soak.maximum > soak.first else ""
    yield Field("soak period", f"{format_duration(soak.first)} after the check passes{longer}")
    if policy.holds:
        yield Field("holds", "; ".join(map(_hold, policy.holds)))
    if policy.silences:
        yield Field("silences", "; ".join(map(_silence, policy.silences)))
    if policy.topologies:
        yield Field(
            "topologies", "; ".join(f"{item.name} by {', '.join(item.labels)}" for item in policy.topologies)
        )
    if policy.locations:
        yield Field("locations", _places(policy.locations))
    stale = policy.stale
    # One stale agent freezes no fleet: see fleet.state.liveness.
    stale_share = format_share(stale.freeze) + (f" ({max(1, int(stale.freeze * count))})" if count else "")
    yield Field(
        "frozen",
        f"while more than {stale_share} of the agents have not reported for {format_duration(stale.after)}",
    )


def _marks(policy: Policy, checks: Mapping[str, Health]) -> Iterator[Field]:
    enforced = enforced_checks(policy, checks)
    for mark, names in enforced.items():
        yield Field(mark.value, _enforced(mark, names, len(_of(mark, checks)), policy.grace))
    if any(enforced.values()):
        marks = policy.marks
        writes = [name for name in ("taint", "cordon", "condition") if getattr(marks, name)]
        device = (
            "; a fault of one GPU on that GPU only, where the cluster supports it" if marks.device else ""
        )
        yield Field("writes", f"{', '.join(writes) or 'nothing'} on the node{device}")
    else:
        yield Field("writes", "nothing on nodes: every check is a dry run")


def _enforced(mark: Mark, names: Sequence[str], total: int, grace: GracePeriods) -> str:
    """Return which checks set a mark, and when. names: of these checks. total: number of checks that can set
    it. grace: from the finding to the mark.
    """
    kind = mark.kind.health
    if not names:
        return f"none of the {total} {kind} checks is enforced. The mark is not set"
    which = f": {_names(names)}" if len(names) < total else ""
    count = f"{len(names)} of {total}" if len(names) < total else f"all {total}"
    verb = "is" if len(names) == 1 else "are"
    own = grace.of(mark)
    when = f"{format_duration(own)} after the check fails" if own else "at once"
    if grace.shared > own:
        when += f", or after {format_duration(grace.shared)} if shared hardware can be the cause"
    return f"{count} {kind} checks {verb} enforced{which}. The mark is set {when}"


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest


def _drain(policy: Policy, checks: Mapping[str, Health], count: int | None) -> str:
    """Return for which checks pods are evicted, and within which limits. count: see policy_view."""
    names, limits = drained_checks(policy, checks), policy.drain.limits
    if not names:
        return "no pod is evicted for any check"
    effect = (
        "pods are evicted" if policy.drain.mode == DrainMode.ENFORCE else "dry run: pods would be evicted"
    )
    nodes = _nodes(limits.nodes, max(1, int(limits.nodes * count)) if count else None)
    notices = {after for check in names if (after := drain_after(policy, check))}
    times = " or ".join(format_duration(after) for after in sorted(notices))
    notice = f". Pods of rules with a deadline have notice for {times}" if notices else ""
    return (
        f"{effect} for {count_noun(len(names), 'check')}: {_names(names)}{notice}. At a time at most {nodes} "
        f"of all nodes, and {limits.domain} of a domain; {limits.hourly} new in 1 h. "
        f"Of their work at a time at most {_work(limits.at_once)}; in 1 h {_work(limits.in_an_hour)}. "
        f"A drain fails after {format_duration(policy.drain.finish_within)}"
    )


def _work(limits: Mapping[str, int]) -> str:
    *parts, last = (f"{limit} {name}" for name, limit in limits.items())
    return f"{', '.join(parts)} and {last}"


def _nodes(share: float, limit: int | None = None) -> str:
    return format_share(share) + (f" ({limit})" if limit is not None else "")


def _budget(budget: Budget, count: int | None) -> str:
    """Return the budgets for marks of single nodes. count: see policy_view."""
    fleet, reserve, suspect = map(format_share, (budget.fleet, budget.reserve, budget.suspect))
    confirmed = format_share(max(budget.domain, CONFIRMED_SHARE))
    rest = (
        f"Also at most {format_share(budget.pool)} of a pool, {format_share(budget.domain)} of a domain "
        f"({confirmed} with confirmed fatal faults), and at least 1 node each. "
        "A limit of 1 node allows 1 quarantined and 1 suspect node"
    )
    if not count:
        return (
            f"{fleet} of all nodes may be marked. {reserve} of these marks are kept for quarantine. "
            f"Suspect: at most {suspect}. {rest}"
        )
    limits = fleet_limits(budget, count)
    nodes, all_nodes, most = limits.fleet.nodes, count_noun(count, "node"), limits.suspect
    if limits.fleet.separate:
        return f"{nodes} of {all_nodes} quarantined, and {most} suspect ({fleet}, at least 1). {rest}"
    reserved = limits.fleet.reserve
    return (
        f"{nodes} of {all_nodes} may be marked ({fleet}). "
        f"{reserved} of these marks {'is' if reserved == 1 else 'are'} kept for quarantine ({reserve}). "
        f"Suspect: at most {most} ({suspect}, or what the reserve leaves). {rest}"
    )


def _domains(policy: Policy, count: int | None) -> str:
    """Return the effect of the policy on degraded domains."""
    if not policy.diagnosis.enforce:
        return "dry run in every topology: nothing is written for a domain"
    budget = policy.budget
    limits = fleet_limits(budget, count) if count else None
    degraded = _nodes(budget.degraded, limits.degraded if limits else None)
    first = _nodes(budget.first, limits.first if limits else None)
    views = ", ".join(policy.diagnosis.enforce)
    return f"marked in {views}: {degraded} of all nodes, {first} in a single one; {budget.domains} new in 1 h"


def _limits(budget: Budget) -> str:
    rest = (
        f"; {', '.join(check_patterns(override))}: {_limit(override.limit(budget.check))}"
        for override in budget.check_overrides
    )
    return _limit(budget.check) + "".join(rest)


def _limit(limit: CheckLimit) -> str:
    return f"{limit.new} new in {format_duration(limit.within)}, {limit.active} active"


def _places(places: Sequence[NodeLocation]) -> str:
    names = {place.node for place in places if not is_pattern(place.node)}
    patterns = sum(1 for place in places if is_pattern(place.node))
    domains_by_topology: dict[str, set[str]] = {}
    for place in places:
        for view, path in place.paths.items():
            domains_by_topology.setdefault(view, set()).add(path)
    domains = (f"{view} {count_noun(len(paths), 'domain')}" for view, paths in domains_by_topology.items())
    rows = [count_noun(len(names), "node") + " by name", count_noun(patterns, "pattern")]
    texts = [row for row, items in zip(rows, (names, patterns), strict=True) if items]
    return f"{' and '.join(texts)}: {', '.join(domains)}"


def _hold(hold: Hold) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in hold.labels.items())
    if checks := check_patterns(hold):
        subject = f"checks {', '.join(checks)}"
    else:
        subject = "nodes " + " with ".join(part for part in (hold.node, labels) if part)
    return f"{subject} ({hold.reason})" if hold.reason else subject


def _silence(silence: Silence) -> str:
    until = f"until {rfc3339(silence.end)}" if silence.until else "permanently"
    return f"{', '.join(silence.patterns)} on {silence.node} {until}"
