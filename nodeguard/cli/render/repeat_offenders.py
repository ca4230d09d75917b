"""Lemons in words. Pure."""

from __future__ import annotations

from nodeguard.cli.render.fleet_words import many, where
from nodeguard.fleet_api.forms import LemonTold, Status
from nodeguard.judge.words import span


def lemon(one: LemonTold) -> str:
    """What is to be done about a part, and why."""
    few = f"{one.expected:.1f}" if one.expected >= _SHOWN else "fewer than 0.1"
    return (
        f"{one.part} ({where(one.slot)}) has failed {one.faults} times in {span(one.age)}, "
        f"where parts of this fleet do {few} times: have it replaced"
    )


def lemons(one: Status) -> str:
    """How many there are, and the worst by name."""
    worst = ", ".join(f"{each.part} in {each.node} ({each.faults} times)" for each in one.lemons)
    rest = f" and {one.lemons_more} more" if one.lemons_more else ""
    return f"{many(len(one.lemons) + one.lemons_more, 'part')} to be replaced: {worst}{rest}"


_SHOWN = 0.05
