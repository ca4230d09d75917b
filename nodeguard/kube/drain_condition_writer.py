"""Writer of the conditions of drained Nodes, under one epoch of the lease.

It compares the drains with the Nodes each time, so that a new leader removes what an earlier one has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from msgspec import Struct

from nodeguard.executors.kube.drain_conditions import desired_drain_conditions, own_drain_conditions
from nodeguard.kube import nodes
from nodeguard.kube.client import STRATEGIC_MERGE_PATCH, version_number
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.kube.repeated_writes import RepeatedWrites
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.eviction import NodeDrain
from nodeguard.model.instant import rfc3339
from nodeguard.model.node import Node, NodeCondition


class _Write(Struct, frozen=True):
    """The drain that a Node is to show; None for none. uid, name: of the Node."""

    uid: str
    name: str
    drain: NodeDrain | None


class DrainConditionWriter:
    """Writes the conditions of drains.

    all_nodes: returns all Nodes. observed_node: returns the Node of a name as the watch last delivered it;
    None for none. is_enabled: returns whether the policy has conditions written.
    """

    def __init__(
        self,
        client: FencedClient,
        queue: WriteQueue,
        *,
        all_nodes: Callable[[], Iterable[Node]],
        observed_node: Callable[[str], Node | None],
        is_enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._queue = queue
        self._all_nodes = all_nodes
        self._observed_node = observed_node
        self._is_enabled = is_enabled
        # Names of the Nodes that may have conditions of nodeguard, by uid; None before the first call.
        self._shown: dict[str, str] | None = None
        # Nodes from responses, by uid, until the watch delivers them.
        self._responses: dict[str, Node] = {}
        self._repeats = RepeatedWrites()

    def show(self, drains: Collection[NodeDrain]) -> None:
        """Write what differs from some drains, which are all that Nodes are to show."""
        if self._shown is None:
            self._shown = {node.uid: node.name for node in self._all_nodes() if own_drain_conditions(node)}
        by_uid = {drain.uid: drain for drain in drains if self._is_enabled()}
        self._shown |= {drain.uid: drain.node for drain in drains}
        for uid, name in tuple(self._shown.items()):
            key, drain = ("drain-condition", uid), by_uid.get(uid)
            node = self._latest(uid, name)
            if node is None:
                self._queue.drop(key)
                self._forget(uid)
            elif self._queue.is_in_flight(key) or drain_condition_patch(node, drain, 0.0) is not None:
                self._queue.put(key, _Write(uid, name, drain), self._write)
            else:
                self._queue.drop(key)
                if drain is None:
                    self._forget(uid)

    def _forget(self, uid: str) -> None:
        assert self._shown is not None
        del self._shown[uid]
        self._responses.pop(uid, None)
        self._repeats.forget(uid)

    def _latest(self, uid: str, name: str) -> Node | None:
        """Return a Node from the watch or from a response, whichever is newer; None if it is gone."""
        observed, response = self._observed_node(name), self._responses.get(uid)
        if observed is None or observed.uid != uid:
            return None
        if response is not None and version_number(observed.version) < version_number(response.version):
            return response
        return observed

    async def _write(self, write: _Write) -> None:
        node = self._latest(write.uid, write.name)
        patch = None if node is None else drain_condition_patch(node, write.drain, time.time())
        if node is None or patch is None:
            return
        undone = f"another client or an admission webhook changes the conditions of a drain of {node.name}"
        self._repeats.check(node.uid, write.drain, undone)
        path = f"{nodes.PATH}/{node.name}"
        try:
            response = await self._client.write("PATCH", f"{path}/status", patch, STRATEGIC_MERGE_PATCH)
        except ApiError as error:
            if error.status == 404:
                return
            if error.status != 409:
                raise
            # Another program may have set a condition meanwhile: the Node is judged again as it is now.
            self._responses[write.uid] = nodes.decode_node(await self._client.read(path))
            raise ConflictError from None
        self._responses[write.uid] = nodes.decode_node(response)
        self._repeats.record(node.uid, write.drain)


def drain_condition_patch(node: Node, drain: NodeDrain | None, now: float) -> dict[str, Any] | None:
    """Return the strategic merge patch of a Node's status that shows a drain; None if the Node does already.
    drain: None for none. now: seconds since the epoch.

    The patch is valid for this version of the Node only: a condition of another program is not overwritten.
    """
    own, desired = own_drain_conditions(node), desired_drain_conditions(node, drain)
    conditions = [{"$patch": "delete", "type": kind} for kind in own if kind not in desired]
    for kind, condition in desired.items():
        if own.get(kind) != condition:
            conditions.append(_body(kind, condition, own.get(kind), rfc3339(now)))
    if not conditions:
        return None
    return {
        "metadata": {"uid": node.uid, "resourceVersion": node.version},
        "status": {"conditions": conditions},
    }


def _body(
    kind: str, condition: NodeCondition, before: NodeCondition | None, timestamp: str
) -> dict[str, str]:
    body = {
        "type": kind,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": timestamp,
    }
    if before is None or before.status != condition.status:
        body["lastTransitionTime"] = timestamp
    return body
