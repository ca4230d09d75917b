"""What agents say, taken to the planner, and what is replied."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.aggregator.history.history import Forgets, Remembers
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import Outbox
from nodeguard.fleet.planner import Planner
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import Reply
from nodeguard.wire.order import Heard, heard
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report

# Seconds after which what was heard of a Node that nobody knows is forgotten.
_STRANGER = 600.0


class Hearing:
    """Answers messages, at once.

    outbox: what people ask of agents. now: gives the moment. news: is called where there is something to plan
    for. met: is given the name, the uid and the report of each node that has news, before it is planned for.
    history: is told of it after.
    """

    def __init__(
        self,
        planner: Planner,
        outbox: Outbox,
        now: Callable[[], Instant],
        news: Callable[[], object],
        met: Callable[[Caller, Report], object] = lambda *_: None,
        history: Remembers | None = None,
    ) -> None:
        self._planner = planner
        self._outbox = outbox
        self._now = now
        self._news = news
        self._met = met
        self._history = history or Forgets()
        self._order: dict[str, Heard] = {}

    def __call__(self, caller: Caller, message: Message) -> Reply:
        """The reply to a message of a node that may say it."""
        uid, now = caller.uid, self._now()
        self._outbox.acknowledged(uid, message.acknowledged, message.answers)
        known = True
        if isinstance(message, Report):
            self._report(caller, message, now)
        else:
            known = self._beat(uid, message, now)
        return Reply(VERSION, heard=message.sequence, resend=not known, instructions=self._outbox.of(uid))

    def forget(self, now: float) -> None:
        """Forget nodes that are no more. now: seconds of a clock that never jumps."""
        planner = self._planner
        gone = [
            uid
            for uid, at in planner.last.items()
            if now - at > _STRANGER and uid not in planner.roster.nodes
        ]
        for uid in gone:
            planner.gone(uid)
        for uid in self._order.keys() - planner.last.keys():
            del self._order[uid]

    def _report(self, caller: Caller, report: Report, now: Instant) -> None:
        order, is_news = heard(self._order.get(caller.uid, Heard()), report)
        self._order[caller.uid] = order
        if is_news:
            self._met(caller, report)
            self._planner.hear(caller.uid, report, now)
            self._history.reported(caller, report, now)
            self._news()

    def _beat(self, uid: str, beat: Heartbeat, now: Instant) -> bool:
        """Whether the report that a heartbeat stands for is known."""
        known = self._planner.heard.get(uid)
        if known is None or known.digest != beat.digest or known.boot_id != beat.boot_id:
            return False
        self._planner.beat(uid, now)
        return True
