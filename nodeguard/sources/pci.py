"""Source `pci`: GPUs, NVSwitches and RDMA functions on the PCI bus, independent of their drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from nodeguard.model import target as targets
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.sources import max_rates
from nodeguard.sources.machine import Machine
from nodeguard.sources.pcie import parse_lanes, read_aer_totals, read_pcie_link
from nodeguard.sources.readings import ObservationDraft, parse_count
from nodeguard.sources.source import source
from nodeguard.sources.vpd import NvswitchManagers

_BUS = "/sys/bus/pci/devices"
_PROCFS = "/proc/driver/nvidia/gpus"

_COUNTS = {"gpu": "gpu.pci_count", "nvswitch": "nvswitch.pci_count", "pci": "rdma.function_count"}
_MANAGERS = "nvswitch.manager_count"
_IS_MANAGER = "pci.manages_nvswitches"
_GPU = ("0300", "0302")
_NVSWITCH = "0680"
_NETWORK = ("02", "0c06")
_INFINIBAND = "0207"
# The first device id of Blackwell, from which on NVSwitches are managed through ConnectX adapters. Source:
# NVIDIA open GPU kernel modules, table of supported devices.
_FIRST_BLACKWELL = 0x2900


class FunctionIdentity(Struct, frozen=True):
    """Identity of a function: hexadecimal ids as text, the class without its programming interface.

    virtual: whether it is an SR-IOV virtual function; None if that could not be read.
    """

    vendor: str
    device: str
    class_code: str
    virtual: bool | None


@source
class PciSource:
    """Reads each watched function of the bus, and the GPUs that the NVIDIA driver lists in /proc.

    Keeps the identity of each address while every round lists that address.
    """

    name = "pci"
    interval = 10.0
    deadline = 5.0
    paths: tuple[str, ...] = ("/sys/bus/pci", _PROCFS)
    signals = signals_by_name(
        Signal("pci.present", "state", "whether the bus lists the function"),
        Signal("pci.vendor", "state", "vendor id, hexadecimal"),
        Signal("pci.device", "state", "device id, hexadecimal"),
        Signal("pci.class", "state", "class and subclass, hexadecimal"),
        Signal("pci.driver", "state", "kernel driver bound to it, empty where none is"),
        Signal("pci.virtual", "state", "whether it is an SR-IOV virtual function"),
        Signal("pci.answers", "state", "whether its configuration space reads as anything but all ones"),
        Signal("pci.link.speed", "gauge", "link speed now, GT/s"),
        Signal("pci.link.speed_max", "gauge", "highest link speed that it is capable of, GT/s"),
        Signal("pci.link.width", "gauge", "lanes in use"),
        Signal("pci.link.width_max", "gauge", "lanes that it is capable of"),
        Signal(
            "pci.aer.correctable",
            "counter",
            "PCIe errors corrected by the link",
            max_rate=max_rates.CORRECTED,
        ),
        Signal(
            "pci.aer.nonfatal",
            "counter",
            "PCIe errors not corrected that left the link working",
            max_rate=max_rates.HANDLED,
        ),
        Signal(
            "pci.aer.fatal",
            "counter",
            "PCIe errors not corrected that made the link unreliable",
            max_rate=max_rates.HANDLED,
        ),
        Signal("pci.iommu_translates", "state", "whether the IOMMU translates the addresses that it uses"),
        Signal("pci.upstream", "state", "address of the bridge above it"),
        Signal("pci.upstream.width_max", "state", "lanes that the bridge above it is capable of"),
        Signal("pci.rdma_devices", "state", "RDMA devices that its driver registered"),
        Signal("pci.vpd", "state", "whether an InfiniBand function has vital product data"),
        Signal("pci.manages_nvswitches", "state", "whether Fabric Manager reaches NVSwitches through it"),
        Signal("pci.procfs", "state", "whether the NVIDIA driver lists the GPU in /proc"),
        Signal(
            "gpu.pci_count",
            "state",
            "NVIDIA GPUs on the bus, without virtual ones and those passed through to a virtual machine",
        ),
        Signal("nvswitch.pci_count", "state", "NVSwitches on the bus, likewise"),
        Signal("nvswitch.manager_count", "state", "functions with a driver that manage NVSwitches, likewise"),
        Signal("rdma.function_count", "state", "RDMA functions on the bus, likewise"),
    )

    def __init__(self) -> None:
        self._identities: dict[str, FunctionIdentity | None] = {}
        self._widths: dict[str, int | None] = {}
        self._managers = NvswitchManagers()

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        node = ObservationDraft(machine, self.name, targets.NODE)
        addresses = node.list_targets(_BUS, *_COUNTS)
        if addresses is None and not node.unlisted:
            yield node.build(status="absent", detail=f"no PCI bus: {_BUS} does not exist")
            return
        listed = node.list_names(_PROCFS, "pci.procfs") or ()
        driven = {targets.gpu_target(name): name for name in listed if targets.bus_address(name)}
        counts = Counter[str]()
        seen: set[str] = set()
        self._managers.begin_round(machine, frozenset(addresses or ()))
        identities = {address: self._identity(node, address) for address in addresses or ()}
        has_managers = any(_is_blackwell(identity) for identity in identities.values())
        for address, identity in identities.items():
            draft = self._function(node, address, identity) if identity is not None else None
            if draft is not None and has_managers and identity is not None:
                self._find_manager(draft, identity)
            # A GPU's virtual functions can share its target; the GPU itself comes first.
            if draft is None or draft.target in seen:
                continue
            seen.add(draft.target)
            if targets.target_kind(draft.target) == "gpu":
                _set_procfs(draft, node, driven)
            _count(draft, node, counts)
            yield draft.build()
        if addresses is not None:
            self._keep_only(addresses)
            yield from self._missing_gpus(driven, seen, frozenset(addresses))
        _set_counts(node, counts)
        yield node.build()

    def _keep_only(self, addresses: tuple[str, ...]) -> None:
        present = frozenset(addresses)
        self._identities = {
            address: identity for address, identity in self._identities.items() if address in present
        }
        self._widths = {address: width for address, width in self._widths.items() if address in present}

    def _missing_gpus(
        self, driven: dict[str, str], seen: set[str], present: frozenset[str]
    ) -> Iterator[Observation]:
        """Yield the GPUs that the driver lists and the complete list of the bus does not."""
        for target, address in driven.items():
            if target not in seen and targets.function_address(address) not in present:
                signals: dict[str, Scalar] = {"pci.present": False, "pci.procfs": True}
                yield Observation(self.name, target, signals=signals)

    def _find_manager(self, draft: ObservationDraft, identity: FunctionIdentity) -> None:
        """Move a function that manages NVSwitches from the network adapters to the NVSwitches."""
        if (identity.vendor, identity.class_code) != ("15b3", _INFINIBAND) or identity.virtual:
            return
        if reason := draft.unread.get("pci.virtual"):
            draft.mark_unread(reason, _IS_MANAGER)
            return
        address = draft.target.partition("/")[2]
        is_manager = self._managers.is_manager(draft.machine, f"{_BUS}/{address}")
        if isinstance(is_manager, str):
            draft.mark_unread(is_manager, _IS_MANAGER)
            return
        draft.signals["pci.vpd"] = is_manager is not None
        if is_manager is not None:
            draft.signals[_IS_MANAGER] = is_manager
        if is_manager:
            draft.target = targets.nvswitch_target(address)

    def _function(
        self, node: ObservationDraft, address: str, identity: FunctionIdentity
    ) -> ObservationDraft | None:
        """Return the draft of a function; None if the function is not watched."""
        path = f"{_BUS}/{address}"
        draft = ObservationDraft(node.machine, self.name, address)
        rdma: tuple[str, ...] = ()
        if identity.class_code.startswith(_NETWORK):
            rdma = draft.list_names(f"{path}/infiniband", "pci.rdma_devices") or ()
        target = function_target(address, identity, has_rdma=bool(rdma))
        if target is None:
            for reason in draft.unread.values():
                node.unlisted.setdefault("pci", f"{address}: {reason}")
            return None
        draft.target = target
        draft.signals = {
            "pci.present": True,
            "pci.vendor": identity.vendor,
            "pci.device": identity.device,
            "pci.class": identity.class_code,
        }
        if identity.virtual is None:
            draft.read_link(f"{path}/physfn", "pci.virtual")
        else:
            draft.signals["pci.virtual"] = identity.virtual
        driver = draft.read_link(f"{path}/driver", "pci.driver")
        if "pci.driver" not in draft.unread:
            draft.signals["pci.driver"] = (driver or "").rpartition("/")[2]
        above = (draft.read_link(path, "pci.upstream", "pci.upstream.width_max") or "").rpartition("/")[0]
        bridge = targets.function_address(above.rpartition("/")[2])
        if bridge:
            draft.signals["pci.upstream"] = bridge
            self._read_upstream(draft, bridge)
        if targets.target_kind(target) == "pci" and "pci.rdma_devices" not in draft.unread:
            draft.signals["pci.rdma_devices"] = len(rdma)
        if targets.target_kind(target) == "gpu":
            draft.read("pci.iommu_translates", f"{path}/iommu_group/type", _translates)
        read_pcie_link(draft, path)
        read_aer_totals(draft, path)
        return draft

    def _read_upstream(self, draft: ObservationDraft, bridge: str) -> None:
        """Set the width of the bridge above a function; it never changes."""
        signal = "pci.upstream.width_max"
        if bridge not in self._widths:
            width = draft.read(signal, f"{_BUS}/{bridge}/max_link_width", parse_lanes)
            if signal not in draft.unread:
                self._widths[bridge] = width
        elif (width := self._widths[bridge]) is not None:
            draft.signals[signal] = width

    def _identity(self, node: ObservationDraft, address: str) -> FunctionIdentity | None:
        """Return the identity at an address; None if its class is not watched or cannot be read."""
        if address in self._identities:
            return self._identities[address]
        draft = ObservationDraft(node.machine, self.name, address)
        path = f"{_BUS}/{address}"
        identity = None
        class_code = draft.read("pci.class", f"{path}/class", _hexadecimal)
        is_watched = class_code is not None and class_code.startswith((*_GPU, _NVSWITCH, *_NETWORK))
        if class_code is not None and is_watched:
            vendor = draft.read("pci.vendor", f"{path}/vendor", _hexadecimal)
            device = draft.read("pci.device", f"{path}/device", _hexadecimal)
            if vendor and device:
                link = draft.read_link(f"{path}/physfn", "pci.virtual")
                virtual = None if "pci.virtual" in draft.unread else link is not None
                identity = FunctionIdentity(vendor, device, class_code[:4], virtual)
        if identity is None and (is_watched or class_code is None):
            reason = next(iter(draft.unread.values()), "it disappeared during the read")
            for kind in _COUNTS:
                node.unlisted.setdefault(kind, f"{address}: {reason}")
        elif identity is None or identity.virtual is not None:
            self._identities[address] = identity
        return identity


def _translates(text: str) -> bool | None:
    """Return whether the domain of an IOMMU group translates; None for one of a virtual machine.

    Raises ValueError. Source: Linux Documentation/ABI/testing/sysfs-kernel-iommu_groups.
    """
    if text not in _IOMMU_DOMAINS:
        raise ValueError(text)
    return _IOMMU_DOMAINS[text]


_IOMMU_DOMAINS = {
    "DMA": True,
    "DMA-FQ": True,
    "identity": False,
    "unmanaged": None,
    "blocked": None,
    "auto": None,
}


def _is_blackwell(identity: FunctionIdentity | None) -> bool:
    """Return whether a function is a GPU of Blackwell or later."""
    is_gpu = identity is not None and identity.vendor == "10de" and identity.class_code in _GPU
    return identity is not None and is_gpu and int(identity.device, 16) >= _FIRST_BLACKWELL


def _set_procfs(draft: ObservationDraft, node: ObservationDraft, driven: dict[str, str]) -> None:
    """Set whether the driver lists a GPU; not if it lists none at all."""
    if "pci.procfs" in node.unread:
        draft.mark_unread(node.unread["pci.procfs"], "pci.procfs")
    elif driven:
        draft.signals["pci.procfs"] = draft.target in driven


def _count(draft: ObservationDraft, node: ObservationDraft, counts: Counter[str]) -> None:
    """Add a function to the count of its kind, unless it is virtual or passed to a virtual machine."""
    count = _COUNTS[targets.target_kind(draft.target)]
    if draft.unread.keys() & {"pci.virtual", "pci.driver"}:
        node.mark_unread(f"{draft.target}: {next(iter(draft.unread.values()))}", count)
    for signal in draft.unread.keys() & {_IS_MANAGER, "pci.rdma_devices"}:
        if signal == _IS_MANAGER or draft.signals.get(_IS_MANAGER):
            node.mark_unread(f"{draft.target}: {draft.unread[signal]}", _MANAGERS)
    if draft.signals.get(_IS_MANAGER):
        counts[_MANAGERS] += bool(draft.signals.get("pci.rdma_devices"))
        return
    is_passed_through = targets.is_passthrough_driver(str(draft.signals.get("pci.driver", "")))
    counts[count] += not draft.signals.get("pci.virtual") and not is_passed_through


def _set_counts(node: ObservationDraft, counts: Counter[str]) -> None:
    """Set the counts of each kind, unless some function was not listed or not identified."""
    for kind, count in (*_COUNTS.items(), ("pci", _MANAGERS)):
        if kind in node.unlisted:
            node.mark_unread(node.unlisted[kind], count)
        elif count not in node.unread:
            node.signals[count] = counts[count]


def function_target(address: str, identity: FunctionIdentity, *, has_rdma: bool) -> str | None:
    """Return the target of a watched function: a GPU, an NVSwitch, or an RDMA function; else None.

    Class codes: PCI Code and ID Assignment Specification; ids: NVIDIA, Mellanox, and Amazon's EFA.
    """
    vendor, device, class_code = identity.vendor, identity.device, identity.class_code
    if vendor == "10de" and class_code in _GPU:
        return targets.gpu_target(address)
    if vendor == "10de" and class_code == _NVSWITCH:
        return targets.nvswitch_target(address)
    mellanox = vendor == "15b3" and class_code in {"0200", "0207"}
    efa = vendor == "1d0f" and device.startswith("efa")
    return targets.pci_target(address) if mellanox or efa or has_rdma else None


def _hexadecimal(text: str) -> str:
    """Return `0x10de` without its prefix."""
    if parse_count(text, 16) >= 1 << 32:
        raise ValueError(text)
    return text.removeprefix("0x").lower()
