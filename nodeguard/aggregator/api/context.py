"""What the handlers of the API read and call."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from nodeguard.aggregator.api.responses import RefusedError
from nodeguard.aggregator.backends.operator_actions import OperatorActions
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.service_state import STANDALONE, ServiceState
from nodeguard.model.action_store import ActionStore
from nodeguard.model.check import Check
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode


class ApiContext(Struct, frozen=True):
    """Inputs of the handlers.

    service, now: return the state of the service and the time, at each call. checks: by id, for their
    commands. action_store: receives what agents are asked to do. history: path of the history file, empty for
    none.
    """

    planner: Planner
    service: Callable[[], ServiceState]
    now: Callable[[], Instant]
    actions: OperatorActions
    action_store: ActionStore
    checks: dict[str, Check] = {}
    history: str = ""
    drain_cluster: Callable[[], DrainCluster | None] = lambda: None
    """Returns the cluster of drains; None while this aggregator does not lead, and without a cluster."""

    def node(self, name: str) -> InventoryNode:
        """Return a node by its name. Raises RefusedError."""
        node = self.planner.node_named(name)
        if node is None:
            raise RefusedError(404, f"there is no node '{name}': see nodeguard get nodes")
        return node

    def leading_cluster(self) -> DrainCluster:
        """Return the cluster of drains. Raises RefusedError if this aggregator has none."""
        cluster = self.drain_cluster()
        if cluster is not None:
            return cluster
        leader = self.service().leader
        if leader == STANDALONE:
            raise RefusedError(
                409,
                "a drain needs Kubernetes, and this aggregator runs without it: drain the node in its "
                "scheduler, as by scontrol update NodeName=NODE State=DRAIN Reason=TEXT",
            )
        if not leader:
            raise RefusedError(409, "no aggregator is the leader, and only the leader reads pods: try again")
        remedy = f"run the command in its pod, {leader}, as kubectl nodeguard does"
        raise RefusedError(409, f"only the leader reads pods: {remedy}")
