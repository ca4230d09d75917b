"""Agent liveness: which agents are stale, and whether the observer itself is the cause. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush, heapreplace
from itertools import chain
from math import inf

from msgspec import Struct

from nodeguard.fleet.state.node_placement import NodePlacement

# Seconds after its own start from which an aggregator may act though few agents were heard; and the share of
# them from which it may at once.
MAX_START_WAIT = 60.0
MIN_REPORTING_SHARE = 0.9

# A domain explains that its nodes are silent where it has so many nodes, and all but this share are.
_MEMBERS = 3
_SILENT = 0.8


# Why nothing new is marked then, in words that stay the same while the numbers change.
FROZEN = "too many agents are silent: see nodeguard status"


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
        self._place: dict[str, float] = {}
        self._quiet: set[str] = set()
        self._never: set[str] = set()
        self._since = -inf
        self._silent: frozenset[str] | None = frozenset()

    def add_node(self, uid: str) -> None:
        """Add a node of the fleet."""
        if uid not in self.last_reports:
            self._never.add(uid)
            self._silent = None
        elif uid in self._quiet:
            self._silent = None

    def remove_node(self, uid: str) -> None:
        """Remove a node of the fleet."""
        if uid in self._never or uid in self._quiet:
            self._never.discard(uid)
            self._silent = None

    def record_report(self, uid: str, at: float) -> None:
        """Record a report or heartbeat."""
        self.last_reports[uid] = at
        if uid in self._never or uid in self._quiet:
            self._never.discard(uid)
            self._quiet.discard(uid)
            self._silent = None
        if at < self._place.get(uid, inf) or uid not in self._place:
            self._queue_up(uid, at)

    def forget(self, uid: str) -> None:
        """Forget a node."""
        self.last_reports.pop(uid, None)
        self._place.pop(uid, None)
        self._quiet.discard(uid)
        if uid in self._placements:
            self._never.add(uid)
        self._silent = None

    def stale_agents(
        self, now: float, after: float, freeze: float, size: Callable[[str], int]
    ) -> StaleAgents:
        """Return the stale agents. after, freeze: see model.policy.Silent; size: how many nodes a budget
        group has.
        """
        self._advance(now - after)
        if self._silent is None:
            self._silent = frozenset(
                chain(self._never, (uid for uid in self._quiet if uid in self._placements))
            )
        silent, most, why = self._silent, freeze * len(self._placements), ""
        if len(silent) > most and (alone := self._unexplained(silent, size)) > most:
            why = (
                f"{len(silent)} of {len(self._placements)} agents are silent and no domain explains "
                f"{alone} of them: see whether they can reach this aggregator"
            )
        return StaleAgents(silent, len(self._placements), len(self._placements) - len(self._never), why)

    def _advance(self, since: float) -> None:
        """Move the nodes whose last report is older than `since` to the quiet ones."""
        if since < self._since:
            # It takes longer now to be silent.
            for uid in self._quiet:
                self._queue_up(uid, self.last_reports[uid])
            self._quiet.clear()
            self._silent = None
        self._since = since
        while self._queue and self._queue[0][0] <= since:
            at, uid = self._queue[0]
            last = self.last_reports[uid] if self._place.get(uid) == at else since
            if last > since:
                self._place[uid] = last
                heapreplace(self._queue, (last, uid))
                continue
            heappop(self._queue)
            if self._place.get(uid) == at:
                del self._place[uid]
                self._quiet.add(uid)
                self._silent = None

    def _queue_up(self, uid: str, at: float) -> None:
        self._place[uid] = at
        heappush(self._queue, (at, uid))

    def _unexplained(self, silent: Iterable[str], size: Callable[[str], int]) -> int:
        quiet = Counter(domain for uid in silent for domain in self._placements[uid].domains)
        dark = {
            one for one, many in quiet.items() if (whole := size(one)) >= _MEMBERS and many >= _SILENT * whole
        }
        return sum(1 for uid in silent if dark.isdisjoint(self._placements[uid].domains))


def may_act(agents: StaleAgents, started: float, now: float) -> bool:
    """Return whether an aggregator that started at a time knows enough of the fleet to write."""
    return now - started >= MAX_START_WAIT or (
        agents.expected > 0 and agents.reported >= MIN_REPORTING_SHARE * agents.expected
    )
