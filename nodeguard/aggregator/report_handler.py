"""The report handler: checks the order of agents' messages, passes reports to the planner, and replies."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.identity.caller import Caller, RequestRefusedError
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.injections import injectable_checks
from nodeguard.fleet.state.latest_report import limit_topologies
from nodeguard.fleet.state.rejected_reports import RejectedReports
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report, ReportedFinding
from nodeguard.wire.sequence import REPLACES_AFTER, Acceptance, SequenceState, accept_message

logger = logging.getLogger(__name__)

# Seconds after which the reports of a node without a Node are removed.
_WITHOUT_NODE = 600.0

# Responses for refused messages: the reason and the remedy.
_REFUSED = {
    Acceptance.OTHER_BOOT: (
        "another boot of this node is reporting: check that one agent runs on the node, and that its token "
        f"or certificate is used nowhere else; after a reboot wait {REPLACES_AFTER:g} s"
    ),
    Acceptance.USED_SEQUENCE: (
        "two agents report as this node, or its clock or state was reset: check that one agent runs on the "
        "node, and that its token or certificate is used nowhere else; an agent that replays a "
        f"recording from its start is accepted after {REPLACES_AFTER:g} s"
    ),
}
_REPLACED = (
    "the token is of another Node than the one that has this name now, as after the Node was deleted and "
    "created again: delete the agent's pod, so that it gets a new token, or wait until the kubelet renews "
    "this one within the hour"
)


class ReportHandler:
    """Handles messages, without waiting.

    planner: is only read here; a report that names more topologies of a check than the planner is logged.
    inputs: receives the reports. outbox: instructions for agents. now: returns
    the time. on_report: is called with the caller and each changed report, before the plan. history: records
    reports. refusals: refused messages of nodes, of any reason. on_detected: receives each new finding, and
    the seconds from its first occurrence to its report here; findings of a node's first report are not new.
    """

    def __init__(
        self,
        planner: Planner,
        inputs: FleetInputs,
        outbox: InstructionOutbox,
        now: Callable[[], Instant],
        on_report: Callable[[Caller, Report], object] = lambda *_: None,
        history: History | None = None,
        *,
        on_detected: Callable[[ReportedFinding, float], object] = lambda *_: None,
    ) -> None:
        self._planner = planner
        self._inputs = inputs
        self._outbox = outbox
        self._now = now
        self._on_report = on_report
        self._history = history
        self.refusals = RejectedReports()
        self._on_detected = on_detected
        self._order: dict[str, SequenceState] = {}

    def __call__(self, caller: Caller, message: Message) -> Reply:
        """Return the reply to a message of a node. A repeated message gets the same reply. Raises
        RequestRefusedError if the message is not applied.
        """
        uid, now = caller.uid, self._now()
        is_new = self._is_accepted(caller, message, now)
        self._outbox.acknowledge(uid, message.acknowledged, message.results)
        resend = not isinstance(message, Report) and not self._is_known(uid, message)
        if is_new and isinstance(message, Report):
            self._report(caller, message, now)
        elif is_new and not resend:
            self._inputs.heartbeat_received(uid, now)
        return Reply(
            VERSION,
            acked_sequence=message.sequence,
            resend=resend,
            instructions=self._outbox.pending(uid),
            injectable=injectable_checks(self._planner.policy.injection),
        )

    def forget(self, now: float) -> None:
        """Remove deleted nodes. now: seconds of a monotonic clock."""
        planner = self._planner
        deleted = [
            uid
            for uid, at in planner.last_reports.items()
            if now - at > _WITHOUT_NODE and uid not in planner.state.nodes
        ]
        for uid in deleted:
            self._inputs.node_deleted(uid)
        for uid in self._order.keys() - planner.last_reports.keys():
            del self._order[uid]

    def message_refused(self, node: str, refused: RequestRefusedError) -> None:
        """Record that a message of a node was refused."""
        self.refusals.add(node, refused.reason, str(refused), self._now().mono)

    def _is_accepted(self, caller: Caller, message: Message, now: Instant) -> bool:
        """Return whether a message is new, not a repetition. Raises RequestRefusedError to refuse it."""
        current = self._planner.state.uid(caller.node)
        if current and current != caller.uid:
            raise RequestRefusedError(403, _REPLACED, reason="node-replaced")
        order, acceptance = accept_message(self._order.get(caller.uid, SequenceState()), message, now.mono)
        self._order[caller.uid] = order
        if acceptance.is_refusal:
            raise RequestRefusedError(409, _REFUSED[acceptance], reason=acceptance.value)
        return acceptance == Acceptance.ACCEPTED

    def _report(self, caller: Caller, report: Report, now: Instant) -> None:
        self._on_report(caller, report)
        previous = self._planner.reports.get(caller.uid)
        if previous is not None:
            active = {(finding.check, finding.target) for finding in previous.findings}
            for finding in report.findings:
                if (finding.check, finding.target) not in active:
                    # An age may be any number: no finding began before time 0.
                    self._on_detected(finding, min(report.age + finding.age, now.wall))
        limited = limit_topologies(report, self._planner.topologies)
        for finding, votes in zip(report.findings, limited.findings, strict=True):
            if finding is not votes:
                # Without the names in the report: an agent can report any.
                logger.warning(
                    "agents report more topologies of a check than the aggregator has: its faults have no "
                    "vote there; start both with the same --checks",
                    extra={"check": finding.check},
                )
        self._inputs.report_received(caller.uid, report, now)
        if self._history is not None:
            self._history.report_received(caller, report, now)

    def _is_known(self, uid: str, beat: Heartbeat) -> bool:
        """Return whether the report that a heartbeat confirms is the latest report of the node."""
        latest = self._planner.reports.get(uid)
        return latest is not None and latest.digest == beat.digest and latest.boot_id == beat.boot_id
