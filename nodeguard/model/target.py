"""Targets: the locations in a node that observations and findings are about.

A target names a location, never the component in it: `node`, `gpu/0000:3b:00`, `gpu/0000:3b:00/nvlink/3`,
`nvswitch/0000:c1:00`, `port/mlx5_0/1`, `pci/0000:9c:00.0`, `fs:/var`, `disk/nvme0n1`, `dimm/mc0/dimm3`,
`service/kubelet`. A result of a site probe has a target of its own, so that probes of one location stay
separate: `probe/NAME` for the node, `probe/NAME/TARGET` for another target.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

from nodeguard.model.natural_order import NaturalOrder, natural_order

TargetKind = Literal[
    "node", "gpu", "nvlink", "nvswitch", "port", "pci", "fs", "disk", "dimm", "service", "probe"
]
TARGET_KINDS: tuple[str, ...] = get_args(TargetKind)

NODE = "node"

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$", re.IGNORECASE)
_INDEX = "index-"
_FOLDS = {"nvlink": "gpu"}
# First path elements of targets; file systems and NVLinks are recognized separately.
_HEADS = frozenset(TARGET_KINDS) - {"fs", "nvlink"}


# Drivers that pass a PCI function to a virtual machine, besides vfio and its variants. The host must not
# evaluate such a function.
_PASSED_ON = frozenset({"pci-stub", "xen-pciback", "pciback"})

# Singular and plural of each kind of target, in texts for people.
NOUNS = {
    "gpu": ("GPU", "GPUs"),
    "nvlink": ("NVLink", "NVLinks"),
    "nvswitch": ("NVSwitch", "NVSwitches"),
    "port": ("port", "ports"),
    "pci": ("PCI function", "PCI functions"),
    "fs": ("file system", "file systems"),
    "disk": ("disk", "disks"),
    "dimm": ("DIMM", "DIMMs"),
    "service": ("service", "services"),
    "probe": ("probe", "probes"),
    NODE: ("", ""),
}


def is_passthrough_driver(driver: str) -> bool:
    """Return whether a PCI driver reserves functions for virtual machines."""
    return "vfio" in driver or driver in _PASSED_ON


@lru_cache(maxsize=4096)
def bus_address(text: str) -> str | None:
    """Return a PCI address without function, lower case, domain of four digits.

    `00000000:3B:00.0` becomes `0000:3b:00`. Returns None if the text is not a PCI address. A missing domain
    is domain 0, as the kernel prints it.
    """
    match = _ADDRESS.match(text.strip())
    if match is None:
        return None
    domain, bus, device, _ = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}".lower()


@lru_cache(maxsize=4096)
def function_address(text: str) -> str | None:
    """Return a PCI address with function, as in sysfs: `0000:9C:00.0` becomes `0000:9c:00.0`.

    The function is 0 if the text has none. Returns None if the text is not a PCI address.
    """
    match = _ADDRESS.match(text.strip())
    if match is None:
        return None
    return f"{bus_address(text)}.{match.group(4) or '0'}"


def gpu_target(address: str) -> str:
    """Return the target of the GPU at a PCI address."""
    return f"gpu/{bus_address(address) or address}"


def unnamed_gpu_target(nvml_index: int) -> str:
    """Return the target of a GPU without a known PCI address, by its NVML index."""
    return f"gpu/{_INDEX}{nvml_index}"


def nvml_bus_id(target: str) -> str:
    """Return the PCI address of a GPU target as NVML prints it, `00000000:3B:00.0`; empty if it has none."""
    head, _, rest = target.partition("/")
    address = bus_address(rest) if head == "gpu" else None
    return f"{address:0>14}.0".upper() if address is not None else ""


def gpu_index(target: str) -> int | None:
    """Return the NVML index of a GPU target without a PCI address; None for every other target."""
    head, _, rest = target.partition(_INDEX)
    return int(rest) if head == "gpu/" and rest.isdecimal() else None


def nvlink_target(gpu: str, link: int) -> str:
    """Return the target of one NVLink of a GPU target."""
    return f"{gpu}/nvlink/{link}"


def nvswitch_target(address: str) -> str:
    """Return the target of the NVSwitch at a PCI address, or of a function that manages NVSwitches.

    An NVSwitch is function 0; of a device that manages several, each function has its number.
    """
    return f"nvswitch/{(function_address(address) or address).removesuffix('.0')}"


def port_target(device: str, number: int | str) -> str:
    """Return the target of one port of an RDMA device."""
    return f"port/{device}/{number}"


def pci_target(address: str) -> str:
    """Return the target of a PCI function that is neither a GPU nor an NVSwitch."""
    return f"pci/{function_address(address) or address}"


def filesystem_target(path: str) -> str:
    """Return the target of a mounted file system."""
    return f"fs:{path}"


def disk_target(name: str) -> str:
    """Return the target of a disk, by the name of its controller, or of a device that is built from disks."""
    return f"disk/{name}"


def probe_target(name: str, target: str) -> str:
    """Return the target of a site probe's result for another target."""
    return f"probe/{name}" if target == NODE else f"probe/{name}/{target}"


def normalize_target(target: str) -> str:
    """Return a target with its PCI address in canonical form: `gpu/00000000:3B:00.0` is `gpu/0000:3b:00`."""
    head, _, rest = target.partition("/")
    address, *below = rest.split("/", 1)
    makes = {"gpu": gpu_target, "nvswitch": nvswitch_target, "pci": pci_target}
    return "/".join((makes[head](address), *below)) if head in makes and address else target


@lru_cache(maxsize=4096)
def target_kind(target: str) -> str:
    """Return the kind of a target, one of TARGET_KINDS; `node` if no other kind matches."""
    if target.startswith("fs:"):
        return "fs"
    head, _, rest = target.partition("/")
    if head == "gpu" and "/nvlink/" in rest:
        return "nvlink"
    return head if head in _HEADS else NODE


def parent_target(target: str) -> str:
    """Return the target that contains this one: the GPU of an NVLink, else the node (also for the node)."""
    return target.partition("/nvlink/")[0] if target_kind(target) in _FOLDS else NODE


@lru_cache(maxsize=4096)
def target_order(target: str) -> tuple[NaturalOrder, ...]:
    """Return the key to sort targets by: NVLink 2 before NVLink 10, `mlx5_2` before `mlx5_10`, and the
    hexadecimal PCI addresses as they are.
    """
    parts = target.split("/")
    return tuple(((True, 0, part),) if _ADDRESS.match(part) else natural_order(part) for part in parts)


def target_label(target: str) -> str:
    """Return a target as text for people: `GPU 0000:3b:00 NVLink 3`, `port mlx5_0/1`, `/var`."""
    shown = {"gpu": "GPU", "nvswitch": "NVSwitch", "pci": "PCI function", "dimm": "DIMM"}
    kind = target_kind(target)
    if kind == "fs":
        return target[3:]
    if kind == "nvlink":
        owner, _, link = target.partition("/nvlink/")
        return f"{target_label(owner)} NVLink {link}"
    head, _, rest = target.partition("/")
    if kind == "probe" and "/" in rest:
        name, _, place = rest.partition("/")
        return f"{target_label(place)}, probe {name}"
    return f"{shown.get(head, head)} {rest}" if rest else target
