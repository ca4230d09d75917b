"""The API server of a world: Nodes, device rules and incidents, and the operators' part of each Node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode, DeviceRule
from nodeguard.model.device import Device
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.node import Node, Taint
from tests.fleet.cluster_planner import apply_desired

FOREIGN = Taint("nvidia.com/gpu", "NoSchedule", "present")


class WorldCluster:
    """Objects by uid or name, and calls for their changes. cordoned: uids with a cordon of an operator."""

    def __init__(self, on_node: Callable[[Node], object], on_deleted: Callable[[str], object]) -> None:
        self.nodes: dict[str, Node] = {}
        self.uids: dict[str, str] = {}
        self.rules: dict[str, DeviceRule] = {}
        self.devices: dict[str, tuple[Device, ...]] = {}
        self.incidents: dict[str, Incident] = {}
        self.decisions: dict[str, OperatorDecision] = {}
        self.cordoned: set[str] = set()
        self._on_node, self._on_deleted = on_node, on_deleted
        self._version = 0

    def uid(self, number: int) -> str:
        """Return the uid of the Node of a number; empty if it is deleted."""
        return self.uids.get(f"node-{number}", "")

    def create(self, number: int, leaf: int) -> None:
        """Create a Node, with the labels of its number."""
        rack = max(2, leaf // 2)
        labels = {
            "pod": f"p{number // (2 * leaf)}", "leaf": f"l{number // leaf}", "rack": f"r{number // rack}",
            "feed": f"f{number // (2 * leaf)}", "pool": "b" if number % 2 else "a",
        }  # fmt: skip
        self._version += 1
        uid = f"uid-{number}" if not self.uid_was_used(number) else f"uid-{number}-{self._version}"
        self.put(Node(f"node-{number}", uid, labels=labels, gpus=8))

    def uid_was_used(self, number: int) -> bool:
        """Return whether a Node of this number existed before."""
        return f"node-{number}" in self.uids

    def record(self, incident: Incident) -> None:
        """Record an incident; the clear of one that opens again was for its earlier occurrence."""
        before = self.incidents.get(incident.name)
        if before is not None and incident.is_open and not before.is_open:
            self.decisions.pop(incident.name, None)
        self.incidents[incident.name] = incident

    def put(self, node: Node) -> None:
        """Create or update a Node."""
        self._version += 1
        node = replace(node, version=str(self._version))
        self.nodes[node.uid] = node
        self.uids[node.name] = node.uid
        self._on_node(node)

    def change(self, number: int, **fields: Any) -> None:
        """Change a Node as another client does; nothing if it is deleted."""
        node = self.nodes.get(self.uid(number))
        if node is not None:
            self.put(replace(node, **fields))

    def annotate(self, number: int, key: str, text: str | None) -> None:
        """Set or remove an annotation of a Node."""
        node = self.nodes.get(self.uid(number))
        if node is not None:
            rest = {name: value for name, value in node.annotations.items() if name != key}
            self.put(replace(node, annotations=rest if text is None else {**rest, key: text}))

    def delete(self, number: int) -> None:
        """Delete a Node."""
        uid = self.uid(number)
        if uid:
            self.uids[f"node-{number}"] = ""
            self.cordoned.discard(uid)
            del self.nodes[uid]
            self._on_deleted(uid)

    def write(self, desired: DesiredNode, version: str) -> bool:
        """Write the marks of a Node. Returns whether it still has this version: else nothing is written."""
        node = self.nodes.get(desired.uid)
        if node is None or node.version != version:
            return False
        self.put(apply_desired(node, desired))
        return True

    def publish(self, number: int) -> None:
        """Publish the GPUs of a node as a DRA driver does."""
        name = f"node-{number}"
        self.devices[name] = tuple(
            Device(name, "gpu.nvidia.com", name, f"gpu-{at}", f"0000:{0x3B + at:02x}:00", f"GPU-{at}")
            for at in range(8)
        )
