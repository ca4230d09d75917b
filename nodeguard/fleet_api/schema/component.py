"""Schema of components: the GPUs, or the ports, of a fleet or of one node."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ComponentView(Struct, frozen=True):
    """A GPU or a port of a node. An unknown field is empty or None."""

    name: str
    """Node and location, such as `gpu-7/0000:3b:00` or `gpu-7/mlx5_0/1`."""
    node: str
    target: str
    index: int | None
    """Index of a GPU in NVML."""
    model: str
    id: str
    """UUID of a GPU, GUID of a port."""
    address: str
    """PCI address of a GPU."""
    serial: str
    vbios: str
    firmware: str
    """Firmware of a port's adapter."""
    health: str
    """Health of the worst finding on it; `ok` if none is and a check of it passed; else `unknown`, as without
    a current report."""
    findings: int
    """Number of findings on it."""
    worst: str
    """Check of the worst finding; empty for none."""
    message: str
    """Message of the worst finding."""
    in_inventory: bool
    """Whether the node's latest inventory has it, which is not so for a lost GPU."""


class ComponentList(Struct, frozen=True):
    """The GPUs or the ports of the fleet or of one node, by node."""

    version: Literal[1]
    at: str
    components: tuple[ComponentView, ...]
    """The GPUs or the ports."""
    omitted: int = 0
    """Number of components, of any kind, that full reports left out; GPUs or ports of this list may be among
    them."""
    omitted_of: tuple[str, ...] = ()
    """Names of the nodes of these reports."""
    not_reported: int = 0
    """Number of nodes without a report."""
