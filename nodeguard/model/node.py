"""Nodes as the fleet sees them in Kubernetes, and the devices that a DRA driver publishes of them."""

from __future__ import annotations

from msgspec import Struct, field

# All that nodeguard writes on a Node begins with this, and nothing else does.
PREFIX = "nodeguard.dev/"


class Taint(Struct, frozen=True):
    """A taint of a Node or of a device.

    effect: `NoSchedule`, `PreferNoSchedule`, `NoExecute`. added: when, in the API's own words, which others'
    taints must keep; empty where it does not say.
    """

    key: str
    effect: str
    value: str = ""
    time_added: str = field(name="timeAdded", default="")


# What stands in a condition's message before the part that changes with the state alone, not with readings.
DETAILS_PREFIX = "Details: "

# Characters of a condition's message at most: it is repeated in every listing of Nodes.
MAX_CONDITION_MESSAGE = 1024


class NodeCondition(Struct, frozen=True):
    """The condition `NodeguardHealthy`. status: `True`, `False` or `Unknown`; reason: one word in CamelCase,
    the same as long as the state is. message: what happened, then DETAILS, where to read more, the checks and
    slots that it is about, and what to do.
    """

    status: str
    reason: str
    message: str = ""

    @property
    def state(self) -> tuple[str, str, str]:
        """What is written anew when it changes: not the words of readings."""
        _, found, details = self.short_message.rpartition(DETAILS_PREFIX)
        return self.status, self.reason, details if found else ""

    @property
    def short_message(self) -> str:
        """The message as it is written: what is too long is cut before the details."""
        head, found, details = self.message.rpartition(DETAILS_PREFIX)
        if not found or len(self.message) <= MAX_CONDITION_MESSAGE:
            return self.message[:MAX_CONDITION_MESSAGE]
        rest = f"… {DETAILS_PREFIX}{details}"[:MAX_CONDITION_MESSAGE]
        return head[: MAX_CONDITION_MESSAGE - len(rest)] + rest

    def replaces(self, before: NodeCondition | None) -> bool:
        """Return whether the condition is to be written on a Node that has another one, None for none.

        A condition without a status is one that is to be taken away.
        """
        if before is None:
            return bool(self.status)
        return not self.status or before.state != self.state


class Node(Struct, frozen=True):
    """A Node object, without what nobody here asks for.

    uid: tells it from an earlier Node of the same name. version: its resourceVersion, which a write of taints
    carries. annotations: those whose keys begin with PREFIX, alone. taints: all, in their order. condition:
    nodeguard's own, None where it has none. gpus: how many it has, scheduled to or not; 0 where no driver
    or plugin says. ready: whether its kubelet says that it is, and is heard.
    """

    name: str
    uid: str
    version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    condition: NodeCondition | None = None
    gpus: int = 0
    ready: bool = True


class Device(Struct, frozen=True):
    """A GPU as a DRA driver publishes it in a ResourceSlice.

    node: the Node's name. driver, pool, name: what a DeviceTaintRule selects it by. address: its PCI address,
    in the form of slots (`0000:3b:00`); uuid; each empty where the driver does not say.
    """

    node: str
    driver: str
    pool: str
    name: str
    address: str = ""
    uuid: str = ""
