"""Nodes that are as they are to be, and need not be looked at until something about them changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport


class SettledNodes:
    """Who rests. Asked of every node that anything is remembered of, for each plan."""

    def __init__(self, roster: FleetState, heard: Mapping[str, LatestReport]) -> None:
        self._roster = roster
        self._heard = heard
        self._found: dict[str, tuple[object, ...]] = {}

    def is_settled(self, uid: str, silent: Set[str], epoch: object, now: float) -> bool:
        """Whether a node is just as it was when it was laid down, and remembers nothing that is to be
        forgotten.

        silent: who is. epoch: another thing whenever another diagnosis is made. now: seconds since 1970.
        """
        found = self._found.get(uid)
        if found is None:
            return False
        for before, after in zip(found, self._about(uid, silent, epoch), strict=True):
            if before is not after:
                return False
        holding, forget = self._roster.marks(uid), self._roster.policy.soak.forget
        return holding.is_marked or any(now - one.ended < forget for one in holding.node.past_charges)

    def add(self, uid: str, silent: Set[str], epoch: object) -> None:
        """A node is as it is to be, and time alone does not change that but for what is forgotten."""
        self._found[uid] = self._about(uid, silent, epoch)

    def discard(self, uid: str) -> None:
        """A node is to be looked at."""
        self._found.pop(uid, None)

    def _about(self, uid: str, silent: Set[str], epoch: object) -> tuple[object, ...]:
        """All that decides what a node is to hold, but for time."""
        roster = self._roster
        return (
            roster.nodes.get(uid),
            roster.marks(uid),
            roster.placements.get(uid),
            self._heard.get(uid),
            uid in silent,
            roster.policy,
            epoch,
        )
