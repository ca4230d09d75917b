"""What agents say, taken to the planner, and what is replied."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.aggregator.history.history import HistoryRecorder, NoHistory
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.rejected_reports import RejectedReports
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report
from nodeguard.wire.sequence import REPLACES_AFTER, Acceptance, SequenceState, accept_message

# Seconds after which what was heard of a Node that nobody knows is forgotten.
_STRANGER = 600.0

# Answers to an agent whose message is refused: the reason, and what to do.
_REFUSED = {
    Acceptance.OTHER_BOOT: (
        "another boot of this node is reporting: see that one agent runs on the node, and that its token or "
        f"certificate is used nowhere else; after a reboot wait {REPLACES_AFTER:g} s"
    ),
    Acceptance.USED_SEQUENCE: (
        "this boot of the node has used this sequence number or a higher one before: see that one agent "
        "runs on the node, and that its token or certificate is used nowhere else; an agent that replays a "
        f"recording from its start is accepted after {REPLACES_AFTER:g} s"
    ),
}
_REPLACED = (
    "the token is of another Node than the one that has this name now, as after the Node was deleted and "
    "created again: delete the agent's pod, so that it gets a new token, or wait until the kubelet renews "
    "this one within the hour"
)


class ReportHandler:
    """Answers messages, at once.

    outbox: what people ask of agents. now: gives the moment. news: is called where there is something to plan
    for. met: is given the name, the uid and the report of each node that has news, before it is planned for.
    history: is told of it after. refusals: messages of nodes that were refused, here or before.
    """

    def __init__(
        self,
        planner: Planner,
        outbox: InstructionOutbox,
        now: Callable[[], Instant],
        news: Callable[[], object],
        met: Callable[[Caller, Report], object] = lambda *_: None,
        history: HistoryRecorder | None = None,
    ) -> None:
        self._planner = planner
        self._outbox = outbox
        self._now = now
        self._news = news
        self._met = met
        self._history = history or NoHistory()
        self.refusals = RejectedReports()
        self._order: dict[str, SequenceState] = {}

    def __call__(self, caller: Caller, message: Message) -> Reply:
        """Return the reply to a message of a node that may say it. Raises RefusedError where it is not
        applied; a message that is repeated is answered as it was before.
        """
        uid, now = caller.uid, self._now()
        is_news = self._is_accepted(caller, message, now)
        self._outbox.acknowledge(uid, message.acknowledged, message.results)
        resend = not isinstance(message, Report) and not self._is_known(uid, message)
        if is_news and isinstance(message, Report):
            self._report(caller, message, now)
        elif is_news and not resend:
            self._planner.record_heartbeat(uid, now)
        return Reply(
            VERSION, acked_sequence=message.sequence, resend=resend, instructions=self._outbox.pending(uid)
        )

    def forget(self, now: float) -> None:
        """Forget nodes that are no more. now: seconds of a clock that never jumps."""
        planner = self._planner
        gone = [
            uid
            for uid, at in planner.last_reports.items()
            if now - at > _STRANGER and uid not in planner.state.nodes
        ]
        for uid in gone:
            planner.remove_node(uid)
        for uid in self._order.keys() - planner.last_reports.keys():
            del self._order[uid]

    def message_refused(self, node: str, refused: RequestRefusedError) -> None:
        """Note that a message of a node was refused, for whatever reason."""
        self.refusals.add(node, refused.reason, str(refused), self._now().mono)

    def _is_accepted(self, caller: Caller, message: Message, now: Instant) -> bool:
        """Whether a message is news, and not repeated. Raises RefusedError where it is not to be applied."""
        known = self._planner.state.uid(caller.node)
        if known and known != caller.uid:
            raise RequestRefusedError(403, _REPLACED, reason="node-replaced")
        order, acceptance = accept_message(self._order.get(caller.uid, SequenceState()), message, now.mono)
        self._order[caller.uid] = order
        if acceptance.is_refusal:
            raise RequestRefusedError(409, _REFUSED[acceptance], reason=acceptance.value)
        return acceptance == Acceptance.ACCEPTED

    def _report(self, caller: Caller, report: Report, now: Instant) -> None:
        self._met(caller, report)
        self._planner.record_report(caller.uid, report, now)
        self._history.report_received(caller, report, now)
        self._news()

    def _is_known(self, uid: str, beat: Heartbeat) -> bool:
        """Whether the report that a heartbeat stands for is known."""
        known = self._planner.reports.get(uid)
        return known is not None and known.digest == beat.digest and known.boot_id == beat.boot_id
