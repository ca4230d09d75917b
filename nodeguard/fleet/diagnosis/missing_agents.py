"""Agents that stopped just before this aggregator started, which never received a report of theirs. Pure."""

from __future__ import annotations

from collections.abc import Set

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.liveness import MAX_START_WAIT
from nodeguard.model.instant import Instant

# Seconds after the start, and since a node became not ready, within which its agent counts as just stopped.
_RECENT = 900.0


class MissingAgents:
    """The nodes that an earlier aggregator probably had reports of.

    Their agents are stale, never reported to this one, and the kubelet stopped at about the same time. A node
    with a kubelet that is ready, or was not ready long before, may never have had an agent.
    """

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self._started: float | None = None
        self._candidates: set[str] | None = None
        self._missing: set[str] = set()

    def __contains__(self, uid: object) -> bool:
        return uid in self._missing

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self._missing.discard(uid)

    def update(self, stale: Set[str], now: Instant) -> set[str]:
        """Return the uids of the nodes that count as missing from now on. stale: nodes with stale agents."""
        if self._started is None:
            self._started = now.mono
        after = now.mono - self._started
        if self._candidates is None and after >= MAX_START_WAIT:
            # Nodes that join later are new: their agents have not started yet.
            self._candidates = set(stale - self._state.reports.keys())
        if not self._candidates:
            return set()
        if after > _RECENT:
            self._candidates = set()
        self._candidates &= stale - self._state.reports.keys()
        missing = {uid for uid in self._candidates if self._stopped_recently(uid, now.wall)}
        self._candidates -= missing
        self._missing |= missing
        return missing

    def _stopped_recently(self, uid: str, now: float) -> bool:
        """Return whether a Node became not ready a short time ago. now: seconds since the epoch.

        A time in the far future comes from another clock and proves nothing.
        """
        node = self._state.nodes.get(uid)
        return node is not None and not node.ready and abs(now - node.not_ready_since) <= _RECENT
