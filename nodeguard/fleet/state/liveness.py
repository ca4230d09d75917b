"""Agent liveness: which agents are stale, and whether the observer itself is the cause. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from math import inf

from msgspec import Struct

from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.fleet.state.silent_nodes import SilentNodes, Unexplained

# Seconds after its start from which an aggregator may act with few reporting agents; and the share of
# reporting agents from which it may act at once.
MAX_START_WAIT = 60.0
MIN_REPORTING_SHARE = 0.9

# Number of nodes that may be down for days in a fleet of any size, while they wait for their repair.
_FEW_DOWN = 3

# Seconds after which a stale agent counts as that of a node that is down, where no kubelet shows it. A server
# with eight GPUs starts in less.
LONG_STALE = 900.0

# The reason of withheld marks then; it stays the same while the numbers change.
FROZEN = "too many agents do not report: see nodeguard status"


class StaleAgents(Struct, frozen=True):
    """The stale agents at a time. stale: uids; expected: how many agents there are; reported: how many have
    reported to this aggregator. frozen: why new marks are frozen; empty if they are not.
    """

    stale: frozenset[str] = frozenset()
    expected: int = 0
    reported: int = 0
    frozen: str = ""


class AgentLiveness:
    """When each agent reported last, in seconds of the monotonic clock, and which agents are stale.

    A queue holds each node at a time of one of its reports; the node is examined only when that time is too
    old. So the cost follows the changes, not the size of the fleet.
    """

    def __init__(self, placements: Mapping[str, NodePlacement]) -> None:
        """placements: of all nodes. The owner reports changes by `add_node` and `remove_node`."""
        self.last_reports: dict[str, float] = {}
        self._placements = placements
        self._queue: list[tuple[float, str]] = []
        self._queued: dict[str, float] = {}
        self._overdue: set[str] = set()
        self._never: set[str] = set()
        self._since = -inf
        self._silent = SilentNodes()
        # Since when agents are stale, the same in their order, and those that became stale or are no longer.
        # A node that is removed and added between two results stays stale.
        self._stale_since: dict[str, float] = {}
        self._long_stale: deque[tuple[float, str]] = deque()
        self._examined: set[str] = set()
        # Nodes that became stale, or are no longer, since `take_changed`.
        self._changed: set[str] = set()
        self._stale: frozenset[str] | None = frozenset()
        # The latest result, and the share above which it freezes marks; None after a change.
        self._latest: tuple[float, StaleAgents] | None = None

    def add_node(self, uid: str) -> None:
        """Add a node of the fleet."""
        self._latest = None
        self._silent.record_resized(self._placements[uid].domains)
        if uid not in self.last_reports:
            self._never.add(uid)
        self._examine(uid)

    def remove_node(self, uid: str, placement: NodePlacement) -> None:
        """Remove a node of the fleet. placement: the one that it had."""
        self._latest = None
        self._never.discard(uid)
        self._examine(uid)
        self._silent.record_resized(placement.domains)

    def record_report(self, uid: str, at: float) -> None:
        """Record a report or heartbeat."""
        self.last_reports[uid] = at
        if uid in self._never or uid in self._overdue:
            self._never.discard(uid)
            self._overdue.discard(uid)
            self._examine(uid)
        queued_at = self._queued.get(uid)
        if queued_at is None or at < queued_at:
            self._queue_up(uid, at)

    def forget(self, uid: str) -> None:
        """Forget a node."""
        self.last_reports.pop(uid, None)
        self._queued.pop(uid, None)
        self._overdue.discard(uid)
        if uid in self._placements:
            self._never.add(uid)
        self._examine(uid)

    def take_changed(self) -> set[str]:
        """Return the uids of nodes that became stale, or are no longer, since the latest call."""
        changed, self._changed = self._changed, set()
        return changed

    def stale_agents(
        self, now: float, after: float, freeze: float, size: Callable[[str], int]
    ) -> StaleAgents:
        """Return the stale agents. after, freeze: see model.policy.StalePolicy; size: returns the number of
        nodes of a budget.
        """
        self._advance(now - after)
        self._find_long_stale(now)
        if self._latest is not None and self._latest[0] == freeze:
            return self._latest[1]
        if self._stale is None:
            self._stale = frozenset(self._silent.nodes)
        unexplained = self._silent.count_unexplained(size, self._never)
        expected, frozen = len(self._placements), ""
        if _is_cut_off(unexplained, expected, freeze):
            those = "them" if unexplained.count == len(self._stale) else f"{unexplained.count} of them"
            frozen = (
                f"{len(self._stale)} of {expected} agents do not report, "
                f"and no failure domain explains {those}: "
                "probably this aggregator is cut off, so check the network between it and the agents"
            )
        agents = StaleAgents(self._stale, expected, expected - len(self._never), frozen)
        self._latest = freeze, agents
        return agents

    def _examine(self, uid: str) -> None:
        """Update whether a node is stale."""
        is_stale = uid in self._placements and (uid in self._never or uid in self._overdue)
        if is_stale == (uid in self._silent.nodes):
            return
        if is_stale:
            placement = self._placements[uid]
            self._silent.add(uid, placement.domains, ready=placement.ready)
        else:
            self._silent.discard(uid)
        self._changed ^= {uid}
        self._examined.add(uid)
        self._stale = self._latest = None

    def _find_long_stale(self, now: float) -> None:
        """Update which nodes count as down because their agents have been stale for long."""
        examined, self._examined = self._examined, set()
        for uid in examined:
            if uid not in self._silent.nodes:
                self._stale_since.pop(uid, None)
            elif now - self._stale_since.setdefault(uid, now) >= LONG_STALE:
                self._silent.set_down(uid)
            elif self._stale_since[uid] == now:
                self._long_stale.append((now, uid))
        while self._long_stale and now - self._long_stale[0][0] >= LONG_STALE:
            at, uid = self._long_stale.popleft()
            if self._stale_since.get(uid) == at:
                self._silent.set_down(uid)
                self._latest = None

    def _advance(self, since: float) -> None:
        """Move the nodes with a last report older than `since` to the overdue ones."""
        if since < self._since:
            # The time limit is longer now.
            overdue, self._overdue = self._overdue, set()
            for uid in overdue:
                self._queue_up(uid, self.last_reports[uid])
                self._examine(uid)
        self._since = since
        while self._queue and self._queue[0][0] <= since:
            at, uid = self._queue[0]
            last = self.last_reports[uid] if self._queued.get(uid) == at else since
            if last > since:
                self._queued[uid] = last
                heapreplace(self._queue, (last, uid))
                continue
            heappop(self._queue)
            if self._queued.get(uid) == at:
                del self._queued[uid]
                self._overdue.add(uid)
                self._examine(uid)

    def _queue_up(self, uid: str, at: float) -> None:
        self._queued[uid] = at
        heappush(self._queue, (at, uid))


def _is_cut_off(unexplained: Unexplained, expected: int, freeze: float) -> bool:
    """Return whether so many agents are stale that the cause is probably this aggregator. expected: agents of
    the fleet. freeze: see model.policy.StalePolicy.

    A Node that is not ready explains its stale agent: its kubelet has stopped, too. So does an agent that has
    been stale for long. Where there are many of them, the network may be the cause. An agent without a report
    since the start may have been stale for long: it counts to the many, and explains nothing yet.
    """
    maybe_down = unexplained.maybe_down
    is_few = maybe_down <= max(_FEW_DOWN, freeze * expected) and 2 * maybe_down < expected
    count = unexplained.count - (unexplained.down if is_few else 0)
    # One silent agent is no sign that this aggregator is cut off, in a fleet of any size.
    return count > max(1.0, freeze * expected)


def may_act(agents: StaleAgents, started: float, now: float) -> bool:
    """Return whether an aggregator that started at a time knows enough of the fleet to write."""
    return now - started >= MAX_START_WAIT or (
        agents.expected > 0 and agents.reported >= MIN_REPORTING_SHARE * agents.expected
    )
