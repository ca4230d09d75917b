"""The executor that posts each change of a wanted mark to one webhook, at least once, in order by node."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from math import ceil

from nodeguard.delivery.attempt import Destination
from nodeguard.delivery.delivery import Delivery, DropReason
from nodeguard.delivery.queue import Message
from nodeguard.executors.executor import ExecutorReports
from nodeguard.executors.webhook.message import Change, posted_marks
from nodeguard.fleet.decide.observed_marks import REPORTED_AFTER, WriteError
from nodeguard.model.decision import NodeDecision

# Seconds between two requests with all marks: a receiver that lost its state, or that refused a node, is
# correct again after them.
RESYNC = 600.0

# Seconds between two looks at whether such a request is due.
_TICK = 1.0

# Changes at once that are posted one by one. Each takes a millisecond while the queue is full; the thousands
# of a degraded fabric would stop the event loop for seconds.
_MOST_CHANGES = 100

# Parts of a list of all marks. With 7,500 nodes a part has less than 100 KB, which receivers accept.
_MOST_PARTS = 100

# The key of requests with all marks; no node has it.
_ALL = ""


class WebhookExecutor:
    """Posts the marks of nodes; see MarkExecutor. It is the mutable owner of what the receiver is to have.

    A request about a node has all of its marks, so a later one replaces an earlier one that waits: after an
    outage the receiver gets the present state, and no history. Only an active aggregator posts, under the
    epoch of its lease; it begins with a request that has all marks.

    reports: receives what the receiver accepted and refused, of the latest decision about each node: one that
    names an older record changes nothing. None where another executor owns the nodes.
    """

    def __init__(
        self,
        destination: Destination,
        reports: ExecutorReports | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.delivery = Delivery([destination], dropped=self._dropped, accepted=self._accepted, wall=wall)
        self._webhook = destination.name
        self._reports = reports
        self._wall = wall
        self._epoch: int | None = None
        self._sequence = 0
        # The latest decisions with marks, and the releases that the receiver has not accepted, by node; and
        # the revisions that are posted or wait, empty without marks, None if it is unknown what it has.
        self._wanted: dict[str, NodeDecision] = {}
        self._posted: dict[str, str | None] = {}
        # Decisions by node of the messages that the receiver has not accepted, by id of the message.
        self._decisions: dict[str, dict[str, NodeDecision]] = {}
        self._resync_at = float("inf")
        # Nodes in one request that the receiver did not find too large.
        self._part_size = sys.maxsize
        # Whether no decision was withdrawn since the latest ones.
        self._is_current = False

    def begin(self, epoch: int) -> None:
        """Start to post, under the epoch of a lease: before the first decisions of it."""
        self.end()
        self._epoch = epoch
        self._resync_at = float("-inf")

    def end(self) -> None:
        """Stop to post: another aggregator leads. A request that has begun may still succeed; the receiver
        ignores it if it has one of a later epoch.
        """
        self._epoch = None
        self._withdraw({*self._posted, _ALL})
        self._wanted.clear()
        self._posted.clear()
        self._is_current = False

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        """Post the decisions about some nodes that the receiver does not have; many with all others."""
        if self._epoch is None:
            return
        self._is_current = True
        changed = list[NodeDecision]()
        # Until the first list, the receiver of an owner may have marks that an earlier aggregator posted.
        is_list_due = self._resync_at == float("-inf")
        unknown = None if self._reports is not None and is_list_due else ""
        for decision in decisions:
            is_changed = self._posted.get(decision.node, unknown) != _revision(decision)
            if decision.marks or is_changed:
                self._wanted[decision.node] = decision
            if is_changed:
                changed.append(decision)
        # A request with all marks that waits would arrive after these, with what is no longer so. One in
        # parts takes longer, and changes may never let it end.
        waits = any(message.kind == "all" for message in self.delivery.waiting(self._webhook))
        if len(changed) > _MOST_CHANGES or (changed and waits):
            self._resync_at = float("-inf")
        if self._resync_at == float("-inf"):
            return  # the request with all marks has them
        for decision in changed:
            self._withdraw({decision.node})
            self._put(decision.node, [[decision]])

    def withdraw(self, nodes: Iterable[str]) -> None:
        """Withdraw the decisions about some nodes that it has not begun to post. It posts the next ones about
        them in any case, and until then no request with all marks.
        """
        keys = set(nodes)
        self._posted.update(dict.fromkeys(keys))
        self._is_current = self._is_current and not keys
        if keys and any(message.key == _ALL for message in self.delivery.waiting(self._webhook)):
            self._resync_at = float("-inf")  # it may have a withdrawn decision
            keys.add(_ALL)
        self._withdraw(keys)

    def is_in_flight(self, node: str) -> bool:
        """Return whether a request about a node is in transit."""
        message = self.delivery.in_transit(self._webhook)
        return message is not None and node in self._decisions.get(message.id, ())

    def tick(self) -> None:
        """Post all marks if that is due, and report what fails."""
        now = self._wall()
        self._report_failing(now)
        # A time that is further away was set before the clock stepped back.
        is_waiting = now < self._resync_at <= now + RESYNC
        if self._epoch is None or not self._is_current or is_waiting:
            return
        self._resync_at = now + RESYNC
        self._withdraw({*self._posted, _ALL})
        self._posted.clear()
        decisions = list(self._wanted.values())
        size = max(self._part_size, ceil(len(decisions) / _MOST_PARTS))
        starts = range(0, max(1, len(decisions)), size)
        self._put(_ALL, [decisions[start : start + size] for start in starts])

    def _report_failing(self, now: float) -> None:
        """Report the requests that have failed for a while."""
        problem = self.delivery.problems.get(self._webhook)
        if self._reports is None or problem is None:
            return
        error = WriteError(problem, is_refused=False)
        for message in self.delivery.waiting(self._webhook):
            if now - message.added_at >= REPORTED_AFTER:
                for node in self._decisions.get(message.id, ()):
                    self._reports.write_failed(node, error)

    async def run(self) -> None:
        """Post until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.delivery.run())
            tasks.create_task(self._tick_regularly())

    async def _tick_regularly(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.tick()

    def _put(self, key: str, parts: list[list[NodeDecision]]) -> None:
        """Post the decision about one node, or all decisions, in parts."""
        epoch, now = self._epoch, self._wall()
        assert epoch is not None
        # By the clock, so that a process that starts again under the same epoch continues after it.
        sequence = self._sequence = max(self._sequence + 1, int(now * 1000))
        change: Change = "node" if key != _ALL else "all" if len(parts) == 1 else "part"
        for part, decisions in enumerate(parts, start=1):
            body = posted_marks(
                change, decisions, epoch=epoch, sequence=sequence, wall=now, part=part, parts=len(parts)
            )
            message = Message(f"{epoch}-{sequence}-{part}", key, body, now, change)
            self._decisions[message.id] = {decision.node: decision for decision in decisions}
            self._posted.update({decision.node: _revision(decision) for decision in decisions})
            self.delivery.put(self._webhook, message)

    def _withdraw(self, keys: set[str]) -> None:
        """Discard requests. One that is in transit may still succeed; it is not sent again."""
        self.delivery.discard(self._webhook, keys)
        in_transit = self.delivery.in_transit(self._webhook)
        sent = {message.id for message in self.delivery.waiting(self._webhook)}
        sent |= {in_transit.id} if in_transit is not None else set()
        self._decisions = {id_: nodes for id_, nodes in self._decisions.items() if id_ in sent}

    def _accepted(self, _webhook: str, message: Message) -> None:
        for node, decision in self._decisions.pop(message.id, {}).items():
            latest = self._wanted.get(node)
            if latest is None or _revision(latest) != _revision(decision):
                continue  # a later request has what is wanted now
            if not latest.marks:
                del self._wanted[node]
            if self._reports is not None:
                self._reports.marks_written(node, latest.record)

    def _dropped(self, webhook: str, message: Message, reason: DropReason) -> bool:
        """Report a refused request, which the next one with all marks repeats. One that has no room is
        repeated at once; one that is too large, in smaller parts. Returns whether it is no refusal.
        """
        nodes = self._decisions.pop(message.id, {})
        is_too_large = reason == "too large" and len(nodes) > max(1, len(self._wanted) / _MOST_PARTS)
        if is_too_large:
            self._part_size = min(self._part_size, ceil(len(nodes) / 2))
            self._withdraw({_ALL})
        if is_too_large or reason in {"expired", "full"}:
            self._resync_at = float("-inf")
            return is_too_large
        error = WriteError(self.delivery.problems.get(webhook, ""), is_refused=True)
        for node in nodes:
            if self._reports is not None:
                self._reports.write_failed(node, error)
        return False


def _revision(decision: NodeDecision) -> str:
    return decision.revision if decision.marks else ""
