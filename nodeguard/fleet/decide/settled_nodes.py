"""Index of settled nodes: each carries what it should, and the planner skips it until it changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport


class SettledNodes:
    """Knows which marked nodes are settled. The planner asks for every marked node, in each plan."""

    def __init__(self, state: FleetState, reports: Mapping[str, LatestReport]) -> None:
        self._state = state
        self._reports = reports
        self._inputs: dict[str, tuple[object, ...]] = {}

    def is_settled(self, uid: str, stale: Set[str], epoch: object, now: float) -> bool:
        """Return whether nothing changed since the node was added, and it has no past to forget.

        stale: uids of nodes with a stale agent. epoch: changes with every change of the diagnosis. now:
        seconds since 1970.
        """
        inputs = self._inputs.get(uid)
        if inputs is None:
            return False
        for before, after in zip(inputs, self._about(uid, stale, epoch), strict=True):
            if before is not after:
                return False
        marks, forget = self._state.marks(uid), self._state.policy.soak.forget
        return marks.is_marked or any(now - past.ended < forget for past in marks.node.past_charges)

    def add(self, uid: str, stale: Set[str], epoch: object) -> None:
        """Add a node that carries what it should; time changes that only for what is forgotten."""
        self._inputs[uid] = self._about(uid, stale, epoch)

    def discard(self, uid: str) -> None:
        """Discard a node: the next plan evaluates it."""
        self._inputs.pop(uid, None)

    def _about(self, uid: str, stale: Set[str], epoch: object) -> tuple[object, ...]:
        """Return all inputs of a node's marks except time; compared by identity."""
        state = self._state
        return (
            state.nodes.get(uid),
            state.marks(uid),
            state.placements.get(uid),
            self._reports.get(uid),
            uid in stale,
            state.policy,
            epoch,
        )
