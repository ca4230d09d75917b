"""Agents that stopped: they no longer report, and did not announce their end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set

from msgspec import Struct

from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.liveness import MAX_START_WAIT
from nodeguard.model.instant import Instant

# Seconds after the start, and since a node became not ready, within which its agent counts as just stopped.
_RECENT = 900.0


class StoppedChanges(Struct, frozen=True):
    """What an update changed, as uids. began, ended: agents that stopped, and that did but report again, or
    are gone; missing: of those that began, the agents that count as missing from now on.
    """

    began: set[str]
    ended: set[str]
    missing: set[str]


class StoppedAgents:
    """The agents that stopped. stale: uids of all nodes with stale agents. since: when an agent was found to
    have stopped, in seconds of the monotonic clock, by uid. missing: those that count as such.

    An agent that never reported to this aggregator is missing if it stopped at about the start: an earlier
    aggregator probably had its reports. It counts as such if its kubelet stopped then, too; a node with a
    kubelet that is ready, or was not ready long before, may never have had an agent.
    """

    def __init__(self, state: FleetState) -> None:
        self.stale: Set[str] = frozenset()
        self.since: dict[str, float] = {}
        self.missing: set[str] = set()
        self._state = state
        self._touched: set[str] = set()
        self._recorded: set[str] = set()  # names of nodes with stale agents in recorded incidents
        self._started: float | None = None
        self._candidates: set[str] | None = None

    @property
    def unreported(self) -> Set[str]:
        """Return the nodes with stale agents that never reported to this aggregator."""
        return self.stale - self._state.reports.keys()

    def was_recorded(self, uid: str) -> bool:
        """Return whether a node without any report had a stale agent before this start, by an incident."""
        placement = self._state.placements.get(uid)
        return placement is not None and placement.name in self._recorded and uid in self.stale

    def record_earlier(self, names: Iterable[str]) -> None:
        """Record the names of nodes that had a stale agent before this start."""
        self._recorded.update(names)

    def touch(self, uid: str) -> None:
        """Examine a node at the next update: its Node, its report, or whether its agent is stale changed."""
        self._touched.add(uid)

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.missing.discard(uid)

    def update(self, stale: Set[str], now: Instant) -> StoppedChanges:
        """Update the nodes that were touched. stale: uids of all nodes with stale agents."""
        self.stale, touched, self._touched = stale, self._touched, set()
        missing = self._new_missing(touched, now)
        changes = StoppedChanges(set(), set(), missing)
        for uid in touched | missing:
            report = self._state.reports.get(uid)
            has_stopped = uid in self.missing if report is None else not report.leaving
            if uid not in stale:
                if self.since.pop(uid, None) is not None:
                    changes.ended.add(uid)
            elif has_stopped and uid not in self.since:
                self.since[uid] = now.mono
                changes.began.add(uid)
        return changes

    def _new_missing(self, touched: Set[str], now: Instant) -> set[str]:
        if self._started is None:
            self._started = now.mono
        after = now.mono - self._started
        if self._candidates is None:
            if after < MAX_START_WAIT:
                return set()
            # Nodes that join later are new: their agents have not started yet.
            self._candidates = set(self.stale - self._state.reports.keys())
            touched = self._candidates
        if after > _RECENT:
            self._candidates = set()
        examined = self._candidates & touched
        reporting = {uid for uid in examined if uid not in self.stale or uid in self._state.reports}
        missing = {uid for uid in examined - reporting if self._stopped_recently(uid, now.wall)}
        self._candidates.difference_update(reporting, missing)
        self.missing |= missing
        return missing

    def _stopped_recently(self, uid: str, now: float) -> bool:
        """Return whether a Node became not ready a short time ago. now: seconds since the epoch.

        A time in the far future comes from another clock and proves nothing.
        """
        node = self._state.nodes.get(uid)
        return node is not None and not node.ready and abs(now - node.not_ready_since) <= _RECENT
