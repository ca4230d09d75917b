"""What a policy comes to, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeguard.aggregator.policy.lint import MARK_HEALTH
from nodeguard.aggregator.policy.units import format_share
from nodeguard.cli.render.terminal import StyledLine, StyledText, field_line
from nodeguard.cli.timestamps import rfc3339
from nodeguard.fleet.budget_limits import fleet_limits
from nodeguard.fleet.policy_rules import hold_on_check, mode_of
from nodeguard.fleet.state.topology.node_locations import is_pattern
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Health
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Budget, CheckLimit, Hold, Mode, NodeLocation, Policy, Silence

if TYPE_CHECKING:
    from nodeguard.config.yaml_document import ConfigError

# Checks that are named before the rest is counted.
_NAMED = 12


def enforced_checks(policy: Policy, checks: Mapping[str, Health]) -> dict[Mark, list[str]]:
    """Checks that set a mark, by mark. checks: health by id."""
    return {mark: [one for one in _of(mark, checks) if _enforces(policy, one, mark)] for mark in Mark}


def _of(mark: Mark, checks: Mapping[str, Health]) -> list[str]:
    return [check for check, health in checks.items() if health == MARK_HEALTH[mark]]


def _enforces(policy: Policy, check: str, mark: Mark) -> bool:
    return mode_of(policy, check, mark) == Mode.ENFORCE and hold_on_check(policy, check) is None


def policy_lines(
    file: str,
    policy: Policy,
    checks: Mapping[str, Health],
    doubts: Sequence[ConfigError],
    count: int | None,
) -> Iterator[StyledLine]:
    """The page that tells of a policy file. count: nodes of a fleet to say budgets of, None for none."""
    warned = f"ok, with {len(doubts)} warning{'s' if len(doubts) > 1 else ''}" if doubts else "ok"
    yield StyledLine((StyledText(f"{file} - ", "strong"),), warned, "warning" if doubts else "ok")
    if policy.pause:
        yield field_line("paused", "nothing new is marked")
    yield from _marks(policy, checks)
    yield field_line("budget", _budget(policy.budget, count))
    if policy.pools:
        said = (f"{one.name} {_nodes(one.share or policy.budget.pool)}" for one in policy.pools)
        yield field_line("pools", ", ".join(said))
    yield field_line("each check", _limits(policy.budget))
    yield field_line("domains", _domains(policy, count))
    soak = policy.soak
    longer = f", longer each time up to {format_duration(soak.maximum)}" if soak.maximum > soak.first else ""
    yield field_line("released", f"{format_duration(soak.first)} after proof that it is over{longer}")
    if policy.holds:
        yield field_line("held", "; ".join(map(_held, policy.holds)))
    if policy.silences:
        yield field_line("silenced", "; ".join(map(_silenced, policy.silences)))
    if policy.topologies:
        yield field_line(
            "views", "; ".join(f"{one.name} by {', '.join(one.labels)}" for one in policy.topologies)
        )
    if policy.locations:
        yield field_line("places", _places(policy.locations))
    silent = policy.stale
    # Not a budget: no node is too few to count here.
    share = format_share(silent.freeze) + (f" ({int(silent.freeze * count)})" if count else "")
    yield field_line(
        "frozen",
        f"while more than {share} of the agents have not reported for {format_duration(silent.after)}",
    )
    for doubt in doubts:
        told = f"line {doubt.line}: {doubt.field}: {doubt.problem}: {doubt.remedy}"
        yield StyledLine((StyledText(f"{'warning':<14}", "warning"),), told)


def _marks(policy: Policy, checks: Mapping[str, Health]) -> Iterator[StyledLine]:
    found = enforced_checks(policy, checks)
    for mark, names in found.items():
        all_of = len(_of(mark, checks))
        rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        which = f": {', '.join(names[:_NAMED])}{rest}" if 0 < len(names) < all_of else ""
        settle = policy.grace.quarantine if mark == Mark.QUARANTINE else policy.grace.suspect
        of = f"{len(names) or 'none'} of {all_of} {MARK_HEALTH[mark].value} checks"
        yield field_line(
            mark.value, f"by {of}{which}" + (f"; after {format_duration(settle)}" if names else "")
        )
    if any(found.values()):
        marks = policy.marks
        writes = [name for name in ("taint", "cordon", "condition") if getattr(marks, name)]
        device = "; a fault of one GPU on that GPU alone, where the cluster can" if marks.device else ""
        yield field_line("writes", f"{', '.join(writes) or 'nothing'} on the node{device}")
    else:
        yield field_line("writes", "nothing on single nodes: every check is a dry run")


def _nodes(share: float, limit: int | None = None) -> str:
    return format_share(share) + (f" ({limit})" if limit is not None else "")


def _budget(budget: Budget, count: int | None) -> str:
    """The budgets of marks of single nodes. count: as of summary."""
    fleet, reserve, suspect = map(format_share, (budget.fleet, budget.reserve, budget.suspect))
    rest = (
        f"{format_share(budget.pool)} of a pool; {format_share(budget.domain)} of a domain; at least 1 node each; "
        "where that is 1 node, 1 quarantined and 1 suspect"
    )
    if not count:
        return f"{fleet} of all nodes, {reserve} of that for quarantine alone; {suspect} suspect; {rest}"
    limits = fleet_limits(budget, count)
    nodes, most = limits.fleet.nodes, limits.suspect
    if limits.fleet.separate:
        return f"{nodes} of {count} nodes quarantined, and {most} suspect ({fleet}, at least 1); {rest}"
    kept = limits.fleet.reserve
    return (
        f"{nodes} of {count} nodes ({fleet}), {kept} of these for quarantine alone ({reserve}); at most "
        f"{most} suspect ({suspect}, or what the reserve leaves); {rest}"
    )


def _domains(policy: Policy, count: int | None) -> str:
    """What becomes of the domains that are to blame."""
    if not policy.diagnosis.enforce:
        return "dry run in every view: nothing is written for a domain"
    budget = policy.budget
    limits = fleet_limits(budget, count) if count else None
    degraded = _nodes(budget.degraded, limits.degraded if limits else None)
    first = _nodes(budget.first, limits.first if limits else None)
    views = ", ".join(policy.diagnosis.enforce)
    return f"marked in {views}: {degraded} of all nodes, {first} in a single one; {budget.domains} new in 1 h"


def _limits(budget: Budget) -> str:
    rest = (f"; {', '.join(one.checks)}: {_limit(one)}" for one in budget.check_overrides)
    return _limit(budget.check) + "".join(rest)


def _limit(limit: CheckLimit) -> str:
    return f"{limit.new} new in {format_duration(limit.within)}, {limit.active} active"


def _places(places: Sequence[NodeLocation]) -> str:
    names = {place.node for place in places if not is_pattern(place.node)}
    patterns = sum(1 for place in places if is_pattern(place.node))
    found: dict[str, set[str]] = {}
    for place in places:
        for view, path in place.paths.items():
            found.setdefault(view, set()).add(path)
    domains = (f"{view} {_many(len(paths), 'domain')}" for view, paths in found.items())
    rows = [_many(len(names), "node") + " by name", _many(patterns, "pattern")]
    said = [row for row, some in zip(rows, (names, patterns), strict=True) if some]
    return f"{' and '.join(said)}: {', '.join(domains)}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _held(hold: Hold) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in hold.labels.items())
    if hold.checks:
        what = f"checks {', '.join(hold.checks)}"
    else:
        what = "nodes " + " with ".join(part for part in (hold.node, labels) if part)
    return f"{what} ({hold.reason})" if hold.reason else what


def _silenced(silence: Silence) -> str:
    until = f"until {rfc3339(silence.until)}" if silence.until else "for ever"
    return f"{', '.join(silence.checks)} on {silence.node} {until}"
