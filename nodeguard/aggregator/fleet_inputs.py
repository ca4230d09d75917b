"""The inputs of the planner: what agents report, what a backend observes, and what operators decide.

Each change goes through here to the planner, and wakes the plan loop. A backend reads the fleet through
`FleetView` and changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from nodeguard.aggregator.clock import current_instant
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.fleet.planner import Planner
from nodeguard.model.device import Device
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode, ObservedMarks
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import MarkRecord
from nodeguard.model.policy import Policy, TopologyLabels
from nodeguard.wire.report import Report


class FleetView(Protocol):
    """What a backend reads of the fleet; the planner has it. A node that does not exist is None."""

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""

    @property
    def last_reports(self) -> Mapping[str, float]:
        """Return when each agent reported last, in seconds of the monotonic clock."""

    def node(self, uid: str) -> InventoryNode | None:
        """Return the node of a uid."""

    def incident(self, name: str) -> Incident | None:
        """Return the incident of a name; None if there is none."""

    def all_incidents(self) -> list[Incident]:
        """Return the incidents of all Nodes, domains and checks."""

    def job_nodes(self, now: Instant) -> Mapping[str, float]:
        """Return the nodes with jobs to read, by uid, with the time of their latest vote or mark request in
        seconds of the monotonic clock.
        """


class FleetInputs:
    """Passes inputs to the planner. Nodes are named by uid.

    wake: is called when there is something to plan for. wake_actions: after a decision of an incident, and
    when stored actions have changed.
    removal_requested_by: the operator who asked to remove all marks, until they are removed; else empty.
    resumed: who ended the latest pause, and when; empty if unknown.
    """

    def __init__(
        self,
        planner: Planner,
        wake: Callable[[], object],
        now: Callable[[], Instant] = current_instant,
        *,
        wake_actions: Callable[[], object] = lambda: None,
    ) -> None:
        self._planner = planner
        self._wake = wake
        self._wake_actions = wake_actions
        self._now = now
        self.removal_requested_by = self.resumed = ""

    # Reports of agents.

    def report_received(self, uid: str, report: Report, now: Instant) -> None:
        """Handle a changed report of a node."""
        self._planner.record_report(uid, report, now)
        self._wake()

    def heartbeat_received(self, uid: str, now: Instant) -> None:
        """Handle a heartbeat of a node: its latest report is unchanged."""
        self._planner.record_heartbeat(uid, now)

    # The inventory.

    def node_changed(
        self, node: InventoryNode, observed: ObservedMarks | None = None, *, is_changed: bool = True
    ) -> None:
        """Handle a node that is new or has changed. observed: its marks; None for no change. is_changed:
        whether anything that is used is different: a watch repeats the response of a write.
        """
        self._planner.update_node(node, observed, is_changed=is_changed)
        if is_changed:
            self._wake()

    def marks_observed(self, uid: str, observed: ObservedMarks) -> None:
        """Handle the marks of a node and its devices that are observed."""
        self._planner.state.update_observed(uid, observed)
        self._wake()

    def node_deleted(self, uid: str) -> None:
        """Handle a deleted node."""
        self._planner.remove_node(uid)
        self._wake()

    def nodes_listed(self) -> None:
        """Handle the end of the first list of nodes: their labels show which topology to use."""
        self._planner.state.choose_topologies()
        self._wake()

    def devices_changed(self, node: str, devices: tuple[Device, ...]) -> None:
        """Handle the devices that are published for a node, by its name."""
        self._planner.update_devices(node, devices)
        self._wake()

    def jobs_read(self, uid: str, jobs: tuple[NodeJob, ...]) -> None:
        """Handle the jobs of the pods on a node; none if they are not read any more."""
        self._planner.state.update_jobs(uid, jobs)
        self._wake()

    def topologies_changed(self, topologies: tuple[TopologyLabels, ...]) -> None:
        """Handle the node labels that other components of the cluster use for its topology."""
        self._planner.state.import_topologies(topologies)
        self._wake()

    def incidents_listed(self, incidents: Iterable[Incident]) -> None:
        """Handle the incidents that were recorded before this aggregator started; once."""
        self._planner.restore_incidents(incidents)
        self._wake()

    def earlier_term_read(self, began: float, ended: float) -> None:
        """Handle from when until when an earlier aggregator led, in seconds since the epoch; once."""
        self._planner.restore_term(began, ended, self._now())
        self._wake()

    # Decisions of operators.

    def incident_decided(self, decision: OperatorDecision, *, is_new: bool) -> None:
        """Handle an operator's decision of one incident.

        is_new: whether its clear was made since this aggregator started. One of a domain or a check is
        carried out here, one of a node by an action. A backend removes the clear of an incident that opens
        again, so an earlier one of an open incident was not carried out yet.
        """
        self._wake_actions()
        incident = self._planner.incident(decision.incident)
        if incident is None or not incident.is_open:
            return
        if incident.node or not decision.clear:
            return
        now, cleared_at = self._now(), decision.cleared_at
        if is_new:
            self._planner.clear(incident, now)
        elif not 0.0 < cleared_at < int(incident.first_seen):
            earlier = Instant(cleared_at, min(now.mono, now.mono_of(cleared_at)), now.boot_id)
            self._planner.clear(incident, earlier)
        self._wake()

    def fleet_decided(self, pause: str, removal_requested_by: str = "", resumed: str = "") -> tuple[str, ...]:
        """Handle operators' decisions of the whole fleet. pause: the reason; empty for none. resumed: who
        ended the latest pause, and when.

        Returns the uids of Nodes of which the backend must withdraw the writes.
        """
        self.removal_requested_by, self.resumed = removal_requested_by, resumed
        begins = bool(pause) and not self._planner.paused
        self._planner.paused = pause
        self._wake()
        return self._planner.drop_issued() if begins else ()

    def actions_changed(self) -> None:
        """Handle that stored actions have changed."""
        self._wake_actions()

    # Results of writes.

    def marks_written(self, uid: str, record: MarkRecord) -> None:
        """Handle that the marks of a node are written. record: of the decision."""
        self._planner.record_written(uid, record)
        self._wake()

    def write_failed(self, name: str, error: WriteError) -> None:
        """Handle that an attempt of a write failed. name: uid of the Node, or name of the device rule."""
        self._planner.unobserved_writes.record_error(name, error)

    def marks_failed(self, uid: str) -> None:
        """Handle that the marks of a Node cannot be written."""
        self._planner.record_failed(uid)
        self._wake()

    def leadership_lost(self) -> None:
        """Handle that no write continues: those without a result do not count."""
        self._planner.drop_issued()
        self._wake()
