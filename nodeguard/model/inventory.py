"""The nodes of a fleet and their observed marks, in the terms of no scheduler: inputs of the fleet half."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.device import Device
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import Mark, NodeMarks

_NO_MARKS: frozenset[Mark] = frozenset()
_NO_DEVICES: frozenset[Device] = frozenset()


class InventoryNode(Struct, frozen=True):
    """A node that exists, as its inventory describes it.

    For example, a node of eight GPUs that an operator holds:

        InventoryNode("uid-1", "node-1", labels={"rack": "r1"}, gpus=8, hold="alice: new cables")
    """

    key: str
    """The uid in Kubernetes, where a name may be used again; the name elsewhere."""
    name: str
    labels: dict[str, str] = {}
    gpus: int = 0
    """Number of GPUs that the scheduler counts; 0 if nothing reports it."""
    ready: bool = True
    """Whether the scheduler considers it to be up."""
    not_ready_since: float = 0.0
    """When it ceased to be, in seconds since the epoch; 0 if it is ready or this is unknown."""
    out_by_operator: bool = False
    """Whether an operator keeps all new work away, as by a cordon."""
    hold: str = ""
    """Reason of an operator's hold; empty for none."""
    maintenance: str = ""
    """Reason of an operator's maintenance; empty for none."""
    planned_maintenance: str = ""
    """Reason of a maintenance that has not begun; empty for none."""
    job: NodeJob | None = None
    """The job that an operator's scheduler names on the node; None if it names none."""
    owner: str = ""
    """The webhook that owns the node: its receiver keeps work away. Empty for the backend."""


class ObservedMarks(Struct, frozen=True):
    """What the executor that owns a node observes of nodeguard's marks there."""

    records: NodeMarks = NodeMarks()
    """As stored beside the marks. An unreadable record supports nothing and counts as empty."""
    present: frozenset[Mark] = _NO_MARKS
    """Kinds that are on the node, whoever set them."""
    in_effect: frozenset[Mark] = _NO_MARKS
    """Those of them that keep work away."""
    is_out: bool = False
    """Whether the executor itself keeps all new work away beside its marks, as by a cordon of its own."""
    foreign: tuple[str, ...] = ()
    """Marks under nodeguard's names that no record explains, for messages: another client set them."""
    devices_in_effect: frozenset[Device] = _NO_DEVICES
    """Devices of the records with a mark that keeps work away."""
    record_problem: str = ""
    """Why the record is not stored beside the marks, although they are set; empty if it is."""


NO_OBSERVED_MARKS = ObservedMarks()
