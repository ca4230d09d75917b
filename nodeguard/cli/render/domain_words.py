"""Words for what nodes share, as the pages of the fleet have them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.render.fleet_words import many
from nodeguard.fleet.views.views import PLACES
from nodeguard.fleet_api.domain_forms import HeldTold, LackTold, ViewTold

_SHOWN = 3


def view(one: ViewTold) -> str:
    """A view: how many domains it has, by what, and who lacks it."""
    if not one.keys:
        return f"{one.view} {many(one.domains, 'version')}"
    lacks = "".join(f", {lacking(lack)}" for lack in one.lacks)
    return f"{one.view} {many(one.domains, 'domain')} by {known_by(one)}{lacks}"


def known_by(one: ViewTold) -> str:
    """By what it is known which nodes share it."""
    if not one.keys:
        return "what agents say they run"
    if one.keys == (PLACES,):
        return "the policy's places"
    return f"label{'' if len(one.keys) == 1 else 's'} {', '.join(one.keys)}"


def lacking(one: LackTold) -> str:
    """Who lacks a key."""
    what = "a place" if one.key == PLACES else one.key
    verb = "lacks" if one.nodes == 1 else "lack"
    return f"{many(one.nodes, 'node')} {verb} {what} ({named(one.names, one.nodes)})"


def held(one: HeldTold) -> str:
    """A suppressed check, and why."""
    alone = f" on {one.domain} alone" if one.domain else ""
    return f"{one.check} is suppressed{alone}: {one.why}"


def named(names: Sequence[str], total: int) -> str:
    """The first few of names, where there may be more than are named."""
    shown = names[:_SHOWN]
    rest = total - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
