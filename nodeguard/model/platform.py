"""Platforms: the hardware that a machine of a known model is expected to have."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.signal import Scalar


class PlatformMatch(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to recognize a platform: every field that is set must be exactly equal.

    A node that lost a component must still be recognized: counts are minimums.

    product_name, sys_vendor, chassis_asset_tag: from DMI. instance_type: of the cloud. gpu: NVML's name of
    every GPU. nvswitches: minimum number of NVSwitch functions on PCI.
    """

    product_name: str = ""
    sys_vendor: str = ""
    chassis_asset_tag: str = ""
    instance_type: str = ""
    gpu: str = ""
    nvswitches: int | None = None


class Platform(Struct, frozen=True):
    """A platform file. expect: expected value by name; the names are the keys of EXPECTATIONS."""

    id: str
    title: str
    match: tuple[PlatformMatch, ...]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    source: str
    notes: tuple[str, ...] = ()


# What a platform file can declare, with its meaning; a check refers to one as `{platform: NAME}`.
EXPECTATIONS = {
    "gpus": "GPUs in the node",
    "gpu_name": "NVML's name of each GPU",
    "nvlink_links": "active NVLinks of each GPU",
    "nvlink_speed_mbps": "raw signalling rate of one NVLink, MB/s",
    "nvswitches": "NVSwitch functions on PCI",
    "fabric_manager": "whether nvidia-fabricmanager runs on the node",
    "c2c_links": "active C2C links of each GPU to its CPU",
    "pcie_gen": "PCIe generation of each GPU's link under load",
    "pcie_width": "PCIe lanes of each GPU's link",
    "ecc": "whether ECC is on",
    "iommu_translates": "whether the IOMMU translates the addresses that the GPUs use",
    "ports": "RDMA ports of the compute fabric",
    "port_rate_gbps": "rate of each of these ports, Gb/s",
    "port_link_layer": "`InfiniBand`, `Ethernet` (RoCE) or `EFA`",
    "port_devices": "names of their RDMA devices, where the platform fixes them",
}
