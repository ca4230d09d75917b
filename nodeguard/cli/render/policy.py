"""What a policy comes to, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeguard.aggregator.policy.amounts import as_share
from nodeguard.aggregator.policy.doubts import MARKED
from nodeguard.cli.moments import rfc3339
from nodeguard.cli.render.page import Line, Words, field
from nodeguard.fleet.budgets import fleet_limits
from nodeguard.fleet.modes import held_check, mode_of
from nodeguard.fleet.views.places import is_pattern
from nodeguard.judge.words import span
from nodeguard.model.finding import Health
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Budget, CheckLimit, Hold, Mode, Place, Policy, Silence

if TYPE_CHECKING:
    from nodeguard.catalog.located import CatalogueError

# Checks that are named before the rest is counted.
_NAMED = 12


def enforced(policy: Policy, checks: Mapping[str, Health]) -> dict[Mark, list[str]]:
    """Checks that set a mark, by mark. checks: health by id."""
    return {mark: [one for one in _of(mark, checks) if _enforces(policy, one, mark)] for mark in Mark}


def _of(mark: Mark, checks: Mapping[str, Health]) -> list[str]:
    return [check for check, health in checks.items() if health == MARKED[mark]]


def _enforces(policy: Policy, check: str, mark: Mark) -> bool:
    return mode_of(policy, check, mark) == Mode.ENFORCE and held_check(policy, check) is None


def summary(
    file: str,
    policy: Policy,
    checks: Mapping[str, Health],
    doubts: Sequence[CatalogueError],
    count: int | None,
) -> Iterator[Line]:
    """The page that tells of a policy file. count: nodes of a fleet to say budgets of, None for none."""
    warned = f"ok, with {len(doubts)} warning{'s' if len(doubts) > 1 else ''}" if doubts else "ok"
    yield Line((Words(f"{file} - ", "strong"),), warned, "warning" if doubts else "ok")
    if policy.pause:
        yield field("paused", "nothing new is marked")
    yield from _marks(policy, checks)
    yield field("budget", _budget(policy.budget, count))
    if policy.pools:
        said = (f"{one.name} {_nodes(one.share or policy.budget.pool)}" for one in policy.pools)
        yield field("pools", ", ".join(said))
    yield field("each check", _limits(policy.budget))
    yield field("domains", _domains(policy, count))
    soak = policy.soak
    longer = f", longer each time up to {span(soak.most)}" if soak.most > soak.first else ""
    yield field("released", f"{span(soak.first)} after proof that it is over{longer}")
    if policy.holds:
        yield field("held", "; ".join(map(_held, policy.holds)))
    if policy.silences:
        yield field("silenced", "; ".join(map(_silenced, policy.silences)))
    if policy.views:
        yield field("views", "; ".join(f"{one.name} by {', '.join(one.labels)}" for one in policy.views))
    if policy.places:
        yield field("places", _places(policy.places))
    silent = policy.silent
    # Not a budget: no node is too few to count here.
    share = as_share(silent.freeze) + (f" ({int(silent.freeze * count)})" if count else "")
    yield field("frozen", f"while more than {share} of the agents have not reported for {span(silent.after)}")
    for doubt in doubts:
        told = f"line {doubt.line}: {doubt.field}: {doubt.problem}: {doubt.remedy}"
        yield Line((Words(f"{'warning':<14}", "warning"),), told)


def _marks(policy: Policy, checks: Mapping[str, Health]) -> Iterator[Line]:
    found = enforced(policy, checks)
    for mark, names in found.items():
        all_of = len(_of(mark, checks))
        rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        which = f": {', '.join(names[:_NAMED])}{rest}" if 0 < len(names) < all_of else ""
        settle = policy.settle.quarantine if mark == Mark.QUARANTINE else policy.settle.suspect
        of = f"{len(names) or 'none'} of {all_of} {MARKED[mark].value} checks"
        yield field(mark.value, f"by {of}{which}" + (f"; after {span(settle)}" if names else ""))
    if any(found.values()):
        marks = policy.marks
        writes = [name for name in ("taint", "cordon", "condition") if getattr(marks, name)]
        device = "; a fault of one GPU on that GPU alone, where the cluster can" if marks.device else ""
        yield field("writes", f"{', '.join(writes) or 'nothing'} on the node{device}")
    else:
        yield field("writes", "nothing on single nodes: every check is a dry run")


def _nodes(share: float, limit: int | None = None) -> str:
    return as_share(share) + (f" ({limit})" if limit is not None else "")


def _budget(budget: Budget, count: int | None) -> str:
    """The budgets of marks of single nodes. count: as of summary."""
    fleet, reserve, suspect = map(as_share, (budget.fleet, budget.reserve, budget.suspect))
    rest = (
        f"{as_share(budget.pool)} of a pool; {as_share(budget.domain)} of a domain; at least 1 node each; "
        "where that is 1 node, 1 quarantined and 1 suspect"
    )
    if not count:
        return f"{fleet} of all nodes, {reserve} of that for quarantine alone; {suspect} suspect; {rest}"
    limits = fleet_limits(budget, count)
    nodes, most = limits.fleet.nodes, limits.suspect
    if limits.fleet.apart:
        return f"{nodes} of {count} nodes quarantined, and {most} suspect ({fleet}, at least 1); {rest}"
    kept = limits.fleet.reserve
    return (
        f"{nodes} of {count} nodes ({fleet}), {kept} of these for quarantine alone ({reserve}); at most "
        f"{most} suspect ({suspect}, or what the reserve leaves); {rest}"
    )


def _domains(policy: Policy, count: int | None) -> str:
    """What becomes of the domains that are to blame."""
    if not policy.blame.enforce:
        return "dry run in every view: nothing is written for a domain"
    budget = policy.budget
    limits = fleet_limits(budget, count) if count else None
    degraded = _nodes(budget.degraded, limits.degraded if limits else None)
    first = _nodes(budget.first, limits.first if limits else None)
    views = ", ".join(policy.blame.enforce)
    return f"marked in {views}: {degraded} of all nodes, {first} in a single one; {budget.domains} new in 1 h"


def _limits(budget: Budget) -> str:
    rest = (f"; {', '.join(one.checks)}: {_limit(one)}" for one in budget.checks)
    return _limit(budget.check) + "".join(rest)


def _limit(limit: CheckLimit) -> str:
    return f"{limit.new} new in {span(limit.within)}, {limit.standing} active"


def _places(places: Sequence[Place]) -> str:
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
    return f"{what} ({hold.why})" if hold.why else what


def _silenced(silence: Silence) -> str:
    until = f"until {rfc3339(silence.until)}" if silence.until else "for ever"
    return f"{', '.join(silence.checks)} on {silence.node} {until}"
