"""Who is silent, and whether that is the nodes' doing or the observer's own. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodeguard.fleet.seat import Seat

# Seconds after its own start from which an aggregator may act though few agents were heard; and the share of
# them from which it may at once.
PATIENCE = 60.0
ENOUGH = 0.9

# A domain explains that its nodes are silent where it has so many nodes, and all but this share are.
_MEMBERS = 3
_SILENT = 0.8


class Silence(Struct, frozen=True):
    """Who is silent at a moment. silent: uids; expected: how many agents there are; heard: how many have said
    anything to this aggregator. frozen: why nothing new is marked, empty where it may be.
    """

    silent: frozenset[str] = frozenset()
    expected: int = 0
    heard: int = 0
    frozen: str = ""


def silence(
    seats: Mapping[str, Seat],
    heard: Mapping[str, float],
    now: float,
    after: float,
    freeze: float,
) -> Silence:
    """Who of the seats' nodes is silent. heard: when each was heard last. Times in seconds of one clock that
    never jumps; after, freeze: as in model.policy.Silent.
    """
    since = now - after
    silent = frozenset(uid for uid in seats if heard.get(uid, since) <= since)
    known = sum(1 for uid in seats if uid in heard)
    alone = silent and _unexplained(seats, silent)
    why = ""
    if alone and alone > freeze * len(seats):
        why = (
            f"{len(silent)} of {len(seats)} agents are silent and no domain explains {alone} of them: "
            "see whether they can reach this aggregator"
        )
    return Silence(silent, len(seats), known, why)


def may_act(one: Silence, started: float, now: float) -> bool:
    """Whether an aggregator that started at a moment knows enough of the fleet to have anything written."""
    return now - started >= PATIENCE or (one.expected > 0 and one.heard >= ENOUGH * one.expected)


def _unexplained(seats: Mapping[str, Seat], silent: Iterable[str]) -> int:
    quiet = Counter(domain for uid in silent for domain in seats[uid].domains)
    if not quiet:
        return len(frozenset(silent))
    whole = Counter(domain for seat in seats.values() for domain in seat.domains if domain in quiet)
    dark = {one for one, many in quiet.items() if whole[one] >= _MEMBERS and many >= _SILENT * whole[one]}
    return sum(1 for uid in silent if dark.isdisjoint(seats[uid].domains))
