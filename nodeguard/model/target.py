"""Names of slots, the places in a node that findings hang on.

A slot's name says where something sits, never what sits there: `node`, `gpu/0000:3b:00`,
`gpu/0000:3b:00/nvlink/3`, `nvswitch/0000:c1:00`, `port/mlx5_0/1`, `pci/0000:9c:00.0`, `fs:/var`,
`disk/nvme0n1`, `dimm/mc0/dimm3`, `service/kubelet`. What a site's own probe says has a slot of its own, so
that probes which speak of one place stay apart: `probe/NAME` of the node, `probe/NAME/SLOT` of another slot.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

TargetKind = Literal[
    "node", "gpu", "nvlink", "nvswitch", "port", "pci", "fs", "disk", "dimm", "service", "probe"
]
TARGET_KINDS: tuple[str, ...] = get_args(TargetKind)

NODE = "node"

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$", re.IGNORECASE)
_INDEX = "index-"
_FOLDS = {"nvlink": "gpu"}
# First words of slots; those of file systems and NVLinks are told otherwise.
_HEADS = frozenset(TARGET_KINDS) - {"fs", "nvlink"}


# Drivers that hand a function to a virtual machine, beside vfio and its variants: it is not this host's to
# judge.
_PASSED_ON = frozenset({"pci-stub", "xen-pciback", "pciback"})


def is_passthrough_driver(driver: str) -> bool:
    """Whether a PCI driver's name is of one that holds functions for virtual machines."""
    return "vfio" in driver or driver in _PASSED_ON


def bus_address(text: str) -> str | None:
    """PCI address without function, lower case, domain of four digits: `00000000:3B:00.0` → `0000:3b:00`.

    Returns None where the text is no PCI address. A missing domain is domain zero, as the kernel prints it.
    """
    found = _ADDRESS.match(text.strip())
    if found is None:
        return None
    domain, bus, device, _ = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}".lower()


def function_address(text: str) -> str | None:
    """PCI address with function, as sysfs names it: `0000:9C:00.0` → `0000:9c:00.0`.

    Function 0 where none is given.
    """
    found = _ADDRESS.match(text.strip())
    if found is None:
        return None
    return f"{bus_address(text)}.{found.group(4) or '0'}"


def gpu_target(address: str) -> str:
    """Slot of the GPU at a PCI address."""
    return f"gpu/{bus_address(address) or address}"


def unnamed_gpu_target(nvml_index: int) -> str:
    """Slot of a GPU whose PCI address is not known, by NVML's index."""
    return f"gpu/{_INDEX}{nvml_index}"


def gpu_index(target: str) -> int | None:
    """NVML's index of a GPU whose PCI address is not known; None for any other slot."""
    head, _, rest = target.partition(_INDEX)
    return int(rest) if head == "gpu/" and rest.isdecimal() else None


def nvlink_target(gpu: str, link: int) -> str:
    """Slot of one NVLink of a GPU."""
    return f"{gpu}/nvlink/{link}"


def nvswitch_target(address: str) -> str:
    """Slot of the NVSwitch at a PCI address."""
    return f"nvswitch/{bus_address(address) or address}"


def port_target(device: str, number: int | str) -> str:
    """Slot of one port of an RDMA device."""
    return f"port/{device}/{number}"


def pci_target(address: str) -> str:
    """Slot of a PCI function that is no GPU and no NVSwitch."""
    return f"pci/{function_address(address) or address}"


def filesystem_target(path: str) -> str:
    """Slot of a mounted file system."""
    return f"fs:{path}"


def probe_target(name: str, target: str) -> str:
    """Slot of what a site's own probe says of another slot."""
    return f"probe/{name}" if target == NODE else f"probe/{name}/{target}"


def normalize_target(target: str) -> str:
    """A slot's one name, however its PCI address is written: `gpu/00000000:3B:00.0` is `gpu/0000:3b:00`."""
    head, _, rest = target.partition("/")
    address, *below = rest.split("/", 1)
    makes = {"gpu": gpu_target, "nvswitch": nvswitch_target, "pci": pci_target}
    return "/".join((makes[head](address), *below)) if head in makes and address else target


@lru_cache(maxsize=4096)
def target_kind(target: str) -> str:
    """Kind of a slot, one of KINDS; `node` for a name that fits no other."""
    if target.startswith("fs:"):
        return "fs"
    head, _, rest = target.partition("/")
    if head == "gpu" and "/nvlink/" in rest:
        return "nvlink"
    return head if head in _HEADS else NODE


def parent_target(target: str) -> str:
    """Slot that holds this one: an NVLink's GPU, else the node. The node is its own parent."""
    return target.partition("/nvlink/")[0] if target_kind(target) in _FOLDS else NODE


def target_label(target: str) -> str:
    """A slot as a person says it: `GPU 0000:3b:00 NVLink 3`, `port mlx5_0/1`, `/var`."""
    shown = {"gpu": "GPU", "nvswitch": "NVSwitch", "pci": "PCI function", "dimm": "DIMM"}
    what = target_kind(target)
    if what == "fs":
        return target[3:]
    if what == "nvlink":
        owner, _, link = target.partition("/nvlink/")
        return f"{target_label(owner)} NVLink {link}"
    head, _, rest = target.partition("/")
    if what == "probe" and "/" in rest:
        name, _, place = rest.partition("/")
        return f"{target_label(place)}, probe {name}"
    return f"{shown.get(head, head)} {rest}" if rest else target
