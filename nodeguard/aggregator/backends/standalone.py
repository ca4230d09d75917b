"""The standalone backend: marks are only advised, and stored with operators' decisions in a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Self

from nodeguard.aggregator.backends.file_actions import FileActionStore
from nodeguard.aggregator.backends.operator_actions import (
    ANONYMOUS,
    OperatorActionError,
    clear_message,
    false_alarm_message,
    format_pause_reason,
    format_resumed,
)
from nodeguard.aggregator.backends.standalone_state import AdvisedMarks
from nodeguard.aggregator.backends.standalone_store import StandaloneStore
from nodeguard.aggregator.fleet_inputs import FleetInputs, FleetView
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.executors.advice.advised_marks import advised_marks
from nodeguard.executors.owners import NodeOwners, adds_mark, owned_record
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.fleet_api.service_state import STANDALONE
from nodeguard.model.decision import NodeDecision
from nodeguard.model.incident import FalseAlarm, Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import NO_OBSERVED_MARKS, InventoryNode, ObservedMarks
from nodeguard.model.pod import RejectedPods
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.model.target import target_kind
from nodeguard.wire.report import Report

logger = logging.getLogger(__name__)

# Seconds between two removals of nodes without reports, and without reports until a node is removed.
_FORGET_INTERVAL = 60.0
_FORGET_AFTER = 86_400.0


class StandaloneBackend:
    """The backend without Kubernetes; see Backend. Here the uid of a node is its name.

    path: of the state file, None to store nothing. fleet: what the planner knows. inputs: receives what is
    reported, decided and advised. Raises StandaloneStateError. Each incident that begins, changes or ends is
    logged.
    """

    leader = STANDALONE
    epoch = 1

    def __init__(
        self, path: str | None, fleet: FleetView, inputs: FleetInputs, owners: NodeOwners | None = None
    ) -> None:
        self._fleet = fleet
        self._owners = owners or NodeOwners()
        # Decisions about nodes that webhooks own, by name, until their receivers have accepted them.
        self._unaccepted: dict[str, NodeDecision] = {}
        self._inputs = inputs
        self.job_reads = {"read": 0, "failed": 0}  # there are no pods
        self.rejected_pods = dict[str, RejectedPods]()
        self.drain_cluster = None
        self._store = StandaloneStore(path, fleet)
        self.action_store = FileActionStore(self._store, inputs.actions_changed)
        # The incidents as they were logged last, by name.
        self._logged = self._store.restored.incidents
        self._began: float | None = None
        self._forgot_at = float("-inf")
        inputs.fleet_decided(self._store.pause)
        inputs.incidents_listed(self._logged.values())
        if self._store.restored.led is not None:
            inputs.earlier_term_read(*self._store.restored.led)
        for name in self._store.gpus.keys() | self._store.advised.keys():
            self._update_node(name)
        for decision in self._store.decisions.values():
            inputs.incident_decided(decision, is_new=False)
        self._store.begin()

    @property
    def state_problem(self) -> str:
        """Return why the latest write of the state failed; empty if it did not."""
        return self._store.problem

    @property
    def actions(self) -> Self:
        """Return this backend: it carries out the actions itself."""
        return self

    def missing_inputs(self) -> str:
        """Return no inputs: there are none to read."""
        return ""

    async def renew_leadership(self, _now: float, _candidacy: Candidacy) -> bool:
        """Return that this aggregator may write: it is the only one."""
        return True

    def vacant_since(self) -> None:
        """Return that this aggregator leads: there is no lease."""

    def lease_problem(self, _now: float) -> None:
        """Return that there is no API server."""

    def write_problem(self) -> None:
        """Return that there is no API server."""

    def refused_requests(self) -> tuple[RefusedRequest, ...]:
        """Return that there is no API server."""
        return ()

    def node_reported(self, caller: Caller, report: Report) -> None:
        """Add a node at its first report, with the GPUs in its inventory."""
        gpus_of = self._store.gpus
        gpus = sum(1 for target in report.inventory.components if target_kind(target) == "gpu")
        if gpus_of.get(caller.node) != gpus and (gpus or caller.node not in gpus_of):
            gpus_of[caller.node] = gpus
            self._store.changed()
            self._update_node(caller.node)

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        """Advise some decisions. They take effect at once. See MarkExecutor."""
        for decision in decisions:
            self._advise(decision)

    def marks_accepted(self, node: str) -> None:
        """Store what the receiver of a node's owner has accepted. See Backend."""
        decision = self._unaccepted.get(node)
        if decision is not None:
            self._advise(decision)

    def withdraw(self, nodes: Iterable[str]) -> None:
        """Forget decisions that wait for a receiver. Others do not wait."""
        for name in nodes:
            self._unaccepted.pop(name, None)

    def is_in_flight(self, _node: str) -> bool:
        """Return that no decision waits here."""
        return False

    def publish(self, plan: Plan, now: Instant) -> None:
        """Log and store the incidents of a plan, and store the advised marks."""
        for incident in plan.incidents:
            before = self._logged.get(incident.name)
            if before is not None and incident.is_open and not before.is_open:
                self._store.forget_occurrence(incident.name)
            if _logged_fields(before) != _logged_fields(incident):
                _log_incident(incident)
        if plan.incidents:
            self._logged = {incident.name: incident for incident in self._fleet.all_incidents()}
            self._store.changed()
        if now.mono - self._forgot_at >= _FORGET_INTERVAL:
            self._forgot_at = now.mono
            self._forget(now.mono)
            self._store.changed()  # with the time until which this aggregator has led
        self._store.write_if_due(now.mono)

    def remove_marks(self) -> bool:
        """Remove all advised marks. Returns whether there were any."""
        has_marks = bool(self._store.advised)
        self._remove_marks()
        return has_marks

    def marks_removed(self, by: str) -> None:
        """Do nothing: the request is not stored."""

    def policy_rejected(self, message: str) -> None:
        """Do nothing: the log has the error."""

    async def pause(self, reason: str, by: str) -> str:
        """Advise no new marks. Survives restarts."""
        pause = format_pause_reason(reason, by, time.time())
        await self._pause(pause)
        logger.info("new marks are paused", extra={"reason": pause})
        return "paused: no new marks are advised, also after a restart; nodeguard resume ends the pause"

    async def resume(self, by: str) -> str:
        """End a pause."""
        await self._pause("", format_resumed(by, time.time()))
        logger.info("new marks are resumed", extra={"by": by or ANONYMOUS})
        return "resumed: marks are advised again"

    async def unmark(self, by: str) -> str:
        """Pause, and remove all advised marks."""
        await self._pause(format_pause_reason("all marks are removed", by, time.time()))
        self._remove_marks()
        await self._store.write()
        logger.info("all marks are removed", extra={"by": by or ANONYMOUS})
        return "paused: all marks are removed; nodeguard resume advises them again"

    async def unmark_nodes(self, nodes: Sequence[str], _reason: str, _by: str) -> str:
        """Refuse: without a Node there is no hold that keeps a mark from being advised again."""
        raise OperatorActionError(
            f"not done: without Kubernetes the advice about {', '.join(nodes)} would return at once: after "
            "a repair, clear the incident (nodeguard incidents clear); else hold the check in the policy"
        )

    async def acknowledge(self, name: str, by: str) -> str:
        """Acknowledge an incident."""
        await self._store.decide(name, acknowledged=by or ANONYMOUS)
        return f"{name} is acknowledged"

    async def clear(self, name: str, by: str) -> str:
        """Clear an incident."""
        clear = f"{by or ANONYMOUS} at {datetime.now(UTC).isoformat(timespec='seconds')}"
        self._inputs.incident_decided(await self._store.decide(name, clear=clear), is_new=True)
        incident = self._fleet.incident(name)
        return clear_message(name, of_many=incident is not None and not incident.node)

    async def record_false_alarm(self, name: str, statement: FalseAlarm) -> str:
        """Record whether an incident was no fault."""
        await self._store.decide(name, false_alarm=statement)
        return false_alarm_message(name, statement)

    async def close(self) -> None:
        """Write the state if it has changed."""
        await self._store.close()

    async def wait_idle(self) -> None:
        """Wait until the state is written."""
        await self._store.wait_idle()

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return operators' decisions, by name of the incident."""
        return self._store.decisions

    def open_decisions(self) -> dict[str, OperatorDecision]:
        """Return operators' decisions of incidents that are recorded as open. See Backend."""
        recorded = self._logged
        return {
            name: decision
            for name, decision in self._store.decisions.items()
            if name not in recorded or recorded[name].is_open
        }

    async def _pause(self, reason: str, resumed: str = "") -> None:
        await self._store.set_pause(reason)
        self._inputs.fleet_decided(reason, resumed=resumed)

    def _update_node(self, name: str) -> None:
        owner = self._owners.owner(name, {})
        node = InventoryNode(name, name, gpus=self._store.gpus.get(name, 0), owner=owner)
        self._inputs.node_changed(node, self._observed(name))

    def _observed(self, name: str) -> ObservedMarks:
        """Return the advised marks of a node as it shows them."""
        advised = self._store.advised.get(name)
        if advised is None:
            return NO_OBSERVED_MARKS
        return advised.observed(self._fleet.policy.marks, self._owners.owner(name, {}))

    def _advise(self, decision: NodeDecision) -> None:
        name, writes = decision.node, self._fleet.policy.marks
        if owner := self._owners.owner(name, {}):
            self._record(decision, owner)
            return
        shown = advised_marks(decision, self._observed(name), writes, out_by_operator=False)
        self._set_advised(name, AdvisedMarks(encode_record(decision.record), shown.is_out))
        self._inputs.marks_written(name, decision.record)
        self._inputs.marks_observed(name, shown)

    def _record(self, decision: NodeDecision, owner: str) -> None:
        """Keep the record of a node that a webhook owns."""
        name, advised = decision.node, self._store.advised.get(decision.node, AdvisedMarks())
        if adds_mark(advised.record, decision.record):
            self._owners.accepted.pop(name, None)  # that was for its earlier marks
        owned = owned_record(advised.record, decision.record, owner, self._owners.accepted.get(name))
        self._set_advised(name, AdvisedMarks(encode_record(owned.stored(owner))))
        if owned.is_final:
            self._unaccepted.pop(name, None)
        else:
            self._unaccepted[name] = decision
        self._inputs.marks_written(name, owned.record)
        self._inputs.marks_observed(name, self._observed(name))

    def _remove_marks(self) -> None:
        self._unaccepted.clear()
        for name in list(self._store.advised):
            self._set_advised(name, AdvisedMarks())
            self._inputs.marks_observed(name, NO_OBSERVED_MARKS)

    def _set_advised(self, name: str, advised: AdvisedMarks) -> None:
        if advised == AdvisedMarks():
            self._store.advised.pop(name, None)
        else:
            self._store.advised[name] = advised
        self._store.changed()

    def _forget(self, now: float) -> None:
        """Remove nodes without a report for a day, except nodes with advised marks."""
        if self._began is None:
            self._began = now
        last, gpus = self._fleet.last_reports, self._store.gpus
        for name in [node for node in gpus if now - last.get(node, self._began) > _FORGET_AFTER]:
            if name not in self._store.advised:
                del gpus[name]
                self._inputs.node_deleted(name)
                self._store.changed()
                logger.info("node without a report for a day is no longer expected", extra={"node": name})


def _log_incident(incident: Incident) -> None:
    """Log an incident that has changed: without Kubernetes the log is the only record of transitions."""
    logger.info(
        "incident changed",
        extra={
            "node": incident.node,
            "incident": incident.name,
            "state": incident.state.value,
            "health": incident.health.value,
            "check": incident.cause,
            "target": incident.target,
            "action": incident.action.value,
            "scope": incident.scope,
            "summary": incident.message,
            "reason": incident.detail,
        },
    )


def _logged_fields(incident: Incident | None) -> tuple[str, ...]:
    """Return the fields of an incident that are logged when they change."""
    return () if incident is None else (incident.state, incident.scope, incident.detail)
