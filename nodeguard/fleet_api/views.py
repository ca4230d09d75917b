"""The views, told, and the checks that are held. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.fleet.domains.words import why_held
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.views.views import Lack
from nodeguard.fleet_api.ages import age
from nodeguard.fleet_api.domain_forms import HeldTold, LackTold, ViewTold
from nodeguard.model.blame import PLACES, VERSIONS
from nodeguard.model.instant import Instant, rfc3339

_NAMES = 8


def views(planner: Planner) -> tuple[ViewTold, ...]:
    """Every view that has domains, those of places first."""
    counts, lacking = domains_by_view(planner), planner.roster.views.lacking()
    known = [view for view in (*PLACES, *VERSIONS) if view in counts]
    others = sorted(counts.keys() - {*PLACES, *VERSIONS})
    return tuple(_view(planner, view, counts[view], lacking) for view in (*known, *others))


def view_of(planner: Planner, view: str) -> ViewTold:
    """One view."""
    return _view(planner, view, domains_by_view(planner).get(view, 0), planner.roster.views.lacking())


def _view(planner: Planner, view: str, many: int, lacking: Mapping[tuple[str, str], Lack]) -> ViewTold:
    lacks = tuple(
        LackTold(key, lack.nodes, lack.names[:_NAMES]) for (of, key), lack in lacking.items() if of == view
    )
    return ViewTold(view, many, planner.roster.views.ways().get(view, ()), lacks)


def domains_by_view(planner: Planner) -> dict[str, int]:
    """How many domains each view has."""
    counts: dict[str, int] = {}
    paths = {*planner.witness.everyone.domains(), *planner.diagnosis.members.domains()}
    for path in paths:
        view = path.partition("/")[0]
        counts[view] = counts.get(view, 0) + 1
    return counts


def held(planner: Planner, now: Instant) -> tuple[HeldTold, ...]:
    """The checks that are held, the first first."""
    found = sorted(planner.diagnosis.held.values(), key=lambda one: (one.since, one.check))
    told = []
    for one in found:
        since = now.wall_of(one.since)
        told.append(
            HeldTold(one.check, one.domain, rfc3339(since), age(now, since), len(one.nodes), why_held(one))
        )
    return tuple(told)
