"""The watches of a cluster: Nodes, DeviceTaintRules, devices, incidents and topologies.

They pass each change to the inputs of the planner, and to the leader session if this aggregator leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from msgspec import Struct

from nodeguard.aggregator.backends.leader import Leader
from nodeguard.aggregator.clock import monotonic
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.kube import device_rules, nodes
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import ApiClient, ApiError, version_number
from nodeguard.kube.devices import DeviceTracker, serves_device_rules
from nodeguard.kube.incident_object import ObservedIncident
from nodeguard.kube.incident_projection import to_incident
from nodeguard.kube.kueue_topologies import KueueTopologyWatch
from nodeguard.kube.node_patch import written_epoch
from nodeguard.model.device import Device
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.inventory import NO_OBSERVED_MARKS
from nodeguard.model.node import Node

logger = logging.getLogger(__name__)

# Seconds between two checks whether the server has DeviceTaintRules, and after a check that failed.
_RULES_PERIOD = 300.0
_RULES_RETRY = 1.0

# Seconds to wait for devices at the start: without them a whole Node is marked for one of its GPUs.
_DEVICES_TIMEOUT = 15.0

Object = TypeVar("Object")


class WatchCallbacks(Struct, Generic[Object], frozen=True):
    """Passes the events of a watch to functions; see kube.watch.WatchHandler."""

    changed: Callable[[Object], None]
    gone: Callable[[str], None]
    synced: Callable[[], None]


class ClusterWatches:
    """Watches the cluster. rules, incidents: the objects of nodeguard that exist, by uid.

    leader: the leader session; None if this aggregator does not lead. on_epoch: receives the lease epoch of
    each written object.
    """

    def __init__(
        self,
        api: ApiClient,
        cluster: ObservedCluster,
        inputs: FleetInputs,
        on_epoch: Callable[[int], object],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._inputs = inputs
        self._on_epoch = on_epoch
        self.leader: Leader | None = None
        self.rules: dict[str, device_rules.ObservedRule] = {}
        self.incidents: dict[str, ObservedIncident] = {}
        # The latest clear of each incident, by its name.
        self._clears: dict[str, str] = {}
        self._missing = {"Nodes", "NodeIncidents", "decisions", "devices", "rules"}
        self._started_at = monotonic()
        node_events = WatchCallbacks(self.node_changed, self.node_deleted, lambda: self.synced("Nodes"))
        incident_events = WatchCallbacks(
            self.incident_changed, self.incident_deleted, lambda: self.synced("NodeIncidents")
        )
        self._nodes = nodes.watch_nodes(api, node_events)
        self._incidents = incidents.watch_incidents(api, incident_events)

    def rules_of(self, node: str) -> tuple[str, ...]:
        """Return the names of nodeguard's DeviceTaintRules of a Node, by its name."""
        return tuple(
            seen.rule.name for seen in self.rules.values() if seen.is_managed and seen.rule.node == node
        )

    def work(self) -> tuple[Coroutine[Any, Any, Any], ...]:
        """Return the coroutines that watch; they run until they are cancelled."""
        return (
            self._nodes.run(),
            self._incidents.run(),
            self._watch_devices(),
            KueueTopologyWatch(self._api, self._inputs.topologies_changed).run(),
        )

    def missing_inputs(self) -> str:
        """Return the names of inputs that were not read yet, with the errors; empty for none.

        Without the recorded incidents, no mark is set or released: what was not read supports nothing and
        removes nothing.
        """
        if monotonic() - self._started_at > _DEVICES_TIMEOUT:
            self._missing.discard("devices")
        errors = {"Nodes": self._nodes.error, "NodeIncidents": self._incidents.error}
        missing = sorted(self._missing)
        return ", ".join(f"{name} ({errors[name]})" if errors.get(name) else name for name in missing)

    def synced(self, name: str) -> None:
        """Handle that all objects of a kind are read. name: of the input, as in `missing_inputs`."""
        is_first = name in self._missing
        self._missing.discard(name)
        if is_first and name == "Nodes":
            self._inputs.nodes_listed()
        if is_first and name == "NodeIncidents":
            decoded = map(to_incident, self.incidents.values())
            self._inputs.incidents_listed(incident for incident in decoded if incident is not None)
            for seen in self.incidents.values():
                self._inputs.incident_decided(seen.decision, is_new=False)

    def node_changed(self, node: Node) -> None:
        """Handle a Node that is new or has changed; an older version than the known one is ignored."""
        old = self._cluster.nodes.get(node.uid)
        if old is None or version_number(node.version) >= version_number(old.version):
            # A kubelet that writes higher and higher epochs must not end the leader session again and again.
            if "Nodes" in self._missing:
                self._on_epoch(written_epoch(node.annotations))
            is_changed = self._cluster.differs(node)
            self._inputs.node_changed(*self._cluster.update_node(node), is_changed=is_changed)

    def node_deleted(self, uid: str) -> None:
        """Handle a deleted Node."""
        self._cluster.remove_node(uid)
        self._inputs.node_deleted(uid)
        if self.leader is not None:
            self.leader.forget([uid])

    def rule_changed(self, seen: device_rules.ObservedRule) -> None:
        """Handle a DeviceTaintRule of nodeguard that is new or has changed."""
        self._on_epoch(written_epoch(seen.annotations))
        self.rules[seen.uid] = seen
        self._cluster.update_rule(seen.rule)
        self._observe(seen.rule.uid)
        if self.leader is not None:
            self.leader.rule_changed(seen)

    def rule_deleted(self, uid: str) -> None:
        """Handle a deleted DeviceTaintRule."""
        seen = self.rules.pop(uid, None)
        if seen is not None:
            self._cluster.remove_rule(seen.rule.name)
            self._observe(seen.rule.uid)
            if self.leader is not None:
                self.leader.rule_gone(seen)

    def _observe(self, uid: str) -> None:
        """Pass on the marks of a Node and its devices."""
        is_known = uid in self._cluster.nodes
        self._inputs.marks_observed(uid, self._cluster.observed(uid) if is_known else NO_OBSERVED_MARKS)

    def _devices_changed(self, node: str, devices: tuple[Device, ...]) -> None:
        self._cluster.update_devices(node, devices)
        self._inputs.devices_changed(node, devices)

    def incident_changed(self, seen: ObservedIncident) -> None:
        """Handle an incident that is new or has changed: by an aggregator or an operator."""
        old = self.incidents.get(seen.uid)
        self.incidents[seen.uid] = seen
        if self.leader is not None:
            self.leader.incidents.changed(seen)
        if old is None or old.decision != seen.decision:
            self._incident_decided(seen.decision)

    def incident_deleted(self, uid: str) -> None:
        """Handle a deleted incident."""
        seen = self.incidents.pop(uid, None)
        if seen is not None:
            self._clears.pop(seen.name, None)
            if self.leader is not None:
                self.leader.incidents.gone(uid)

    def _incident_decided(self, decision: OperatorDecision) -> None:
        before, self._clears[decision.incident] = self._clears.get(decision.incident, ""), decision.clear
        # The clears of the first list are not new: see FleetInputs.incident_decided.
        is_new = decision.clear not in {"", before} and "NodeIncidents" not in self._missing
        self._inputs.incident_decided(decision, is_new=is_new)

    async def _watch_devices(self) -> None:
        """Watch devices and DeviceTaintRules, as soon as the server has them."""
        while True:
            wait = _RULES_RETRY
            try:
                if await serves_device_rules(self._api):
                    break
                self._missing -= {"devices", "rules"}
                wait = _RULES_PERIOD
            except ApiError as error:
                logger.warning(
                    "cannot find out whether the cluster has DeviceTaintRules", extra={"error": error.message}
                )
            await asyncio.sleep(wait)
        rule_events = WatchCallbacks(self.rule_changed, self.rule_deleted, lambda: self.synced("rules"))
        tracker = DeviceTracker(self._api, self._devices_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(device_rules.watch_rules(self._api, rule_events).run())
            devices = group.create_task(tracker.run())
            while not (tracker.is_complete or devices.done()):
                await asyncio.sleep(0.05)
            self._missing.discard("devices")
