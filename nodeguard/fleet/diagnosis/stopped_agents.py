"""Agents that stopped: they no longer report, and did not announce their end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set
from math import inf

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
        self._recorded: set[str] = set()  # names of nodes with stale agents in recorded incidents
        self._started = inf
        self._unreported_at_start: Set[str] | None = None

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

    def update(self, stale: Set[str], now: Instant) -> StoppedChanges:
        """Update which agents have stopped. stale: uids of all nodes with stale agents; the same object as in
        the latest update if none became stale, reported or is gone since.
        """
        is_same, self.stale, before = stale is self.stale, stale, self.since
        missing = self._new_missing(now)
        if is_same and not missing:
            return StoppedChanges(set(), set(), set())
        self.missing = {uid for uid in self.missing if uid in self._state.nodes} | missing
        stopped = {uid for uid in stale if self._has_stopped(uid)}
        self.since = {uid: before.get(uid, now.mono) for uid in stopped}
        return StoppedChanges(stopped - before.keys(), before.keys() - stopped, missing)

    def _has_stopped(self, uid: str) -> bool:
        report = self._state.reports.get(uid)
        return uid in self.missing if report is None else not report.leaving

    def _new_missing(self, now: Instant) -> set[str]:
        self._started = min(self._started, now.mono)
        after = now.mono - self._started
        if not MAX_START_WAIT <= after <= _RECENT:
            return set()
        if self._unreported_at_start is None:
            # Nodes that join later are new: their agents have not started yet.
            self._unreported_at_start = self.unreported
        unreported = self._unreported_at_start & self.unreported - self.missing
        return {uid for uid in unreported if self._stopped_recently(uid, now.wall)}

    def _stopped_recently(self, uid: str, now: float) -> bool:
        """Return whether a Node became not ready a short time ago. now: seconds since the epoch.

        A time in the far future comes from another clock and proves nothing.
        """
        node = self._state.nodes.get(uid)
        return node is not None and not node.ready and abs(now - node.not_ready_since) <= _RECENT
