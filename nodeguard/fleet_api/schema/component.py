"""Schema of components: the GPUs, or the ports, of a fleet or of one node."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ComponentView(Struct, frozen=True):
    """A GPU or a port of a node. An unknown field is empty or None.

    name: node and location, such as `gpu-7/0000:3b:00` or `gpu-7/mlx5_0/1`. index: that of NVML. id: UUID of
    a GPU, GUID of a port. address: PCI address of a GPU. firmware: of a port's adapter. health: of the worst
    finding on it; `ok` if none is and a check of it passed; else `unknown`, as without a current report.
    findings: number of findings on it; worst: check of the worst one, message: its message. in_inventory:
    whether the node's latest inventory has it. It has no GPU that is lost.
    """

    name: str
    node: str
    target: str
    index: int | None
    model: str
    id: str
    address: str
    serial: str
    vbios: str
    firmware: str
    health: str
    findings: int
    worst: str
    message: str
    in_inventory: bool


class ComponentList(Struct, frozen=True):
    """The GPUs or the ports of the fleet or of one node, by node.

    omitted: number of components, of any kind, that full reports left out where GPUs or ports of this list
    may be among them; omitted_of: the nodes. not_reported: number of nodes without a report.
    """

    version: Literal[1]
    at: str
    components: tuple[ComponentView, ...]
    omitted: int = 0
    omitted_of: tuple[str, ...] = ()
    not_reported: int = 0
