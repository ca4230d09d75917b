"""Kubernetes Nodes: the fields of their objects that nodeguard uses."""

from __future__ import annotations

from msgspec import Struct, field

# Every key that nodeguard writes on a Node starts with this prefix.
PREFIX = "nodeguard.dev/"


class Taint(Struct, frozen=True):
    """A taint of a Node or of a device.

    effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`. time_added: the API's `timeAdded` as text, which
    a write must preserve; empty if the taint has none.
    """

    key: str
    effect: str
    value: str = ""
    time_added: str = field(name="timeAdded", default="")


# Separates a condition's message from its details, which change only with the state, not with each reading.
DETAILS_PREFIX = "Details: "

# Maximum characters of a condition's message: every list of Nodes repeats it.
MAX_CONDITION_MESSAGE = 1024


# Conditions of a Node in Kubernetes 1.37 (KEP-5683). An administrator, or a program that carries out the
# maintenance, sets them.
MAINTENANCE_PLANNED, MAINTENANCE_IN_PROGRESS = "MaintenancePlanned", "MaintenanceInProgress"


class NodeCondition(Struct, frozen=True):
    """The condition `NodeguardHealthy`.

    status: `True`, `False` or `Unknown`. reason: one CamelCase word, constant while the state lasts. message:
    what happened, then DETAILS_PREFIX, then where to read more, the checks, the targets and the action.
    """

    status: str
    reason: str
    message: str = ""

    @property
    def state(self) -> tuple[str, str, str]:
        """Return the parts that cause a write when they change; text from readings does not."""
        _, prefix, details = self.short_message.rpartition(DETAILS_PREFIX)
        return self.status, self.reason, details if prefix else ""

    @property
    def short_message(self) -> str:
        """Return the message as written to the API: the part before the details is cut if it is too long."""
        head, prefix, details = self.message.rpartition(DETAILS_PREFIX)
        if not prefix or len(self.message) <= MAX_CONDITION_MESSAGE:
            return self.message[:MAX_CONDITION_MESSAGE]
        rest = f"… {DETAILS_PREFIX}{details}"[:MAX_CONDITION_MESSAGE]
        return head[: MAX_CONDITION_MESSAGE - len(rest)] + rest

    def replaces(self, before: NodeCondition | None) -> bool:
        """Return whether to write this condition on a Node that has `before`; None means that it has none.

        A condition without a status removes the present one.
        """
        if before is None:
            return bool(self.status)
        return not self.status or before.state != self.state


class Node(Struct, frozen=True):
    """The fields of a Node object that nodeguard uses.

    uid: distinguishes it from an earlier Node of the same name. version: the resourceVersion, sent with every
    write of taints. annotations: only keys that start with PREFIX. taints: all, in order. condition:
    NodeguardHealthy, None if absent. drain_conditions: `DrainInProgress` and `Drained`, by type, whichever
    program set them. maintenance_conditions: `MaintenancePlanned` and `MaintenanceInProgress`, those that are
    True. gpus: number of GPUs in the node's capacity; 0 if no device plugin or driver reports it.
    ready: whether the Ready condition is True. not_ready_since: when it ceased to be, in seconds since the
    epoch; 0 if it is True or this is unknown.
    """

    name: str
    uid: str
    version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    condition: NodeCondition | None = None
    drain_conditions: dict[str, NodeCondition] = {}
    maintenance_conditions: frozenset[str] = frozenset()
    gpus: int = 0
    ready: bool = True
    not_ready_since: float = 0.0
