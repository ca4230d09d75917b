"""Source `infiniband`: RDMA ports (InfiniBand, RoCE and EFA), from /sys/class/infiniband."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from msgspec import Struct

from nodeguard.model import target as targets
from nodeguard.model.observation import Component, Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.sources import max_rates
from nodeguard.sources.machine import Machine
from nodeguard.sources.rdma_counters import EFA, MLX5, PMA, read_counters
from nodeguard.sources.readings import (
    ObservationDraft,
    parse_count,
    parse_counter,
    parse_model,
    parse_number,
)
from nodeguard.sources.source import source
from nodeguard.sources.transceiver import LIMIT, TEMPERATURE, read_transceiver

_CLASS = "/sys/class/infiniband"

# Linux drivers/infiniband/core/sysfs.c
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_PHYSICAL_STATES = (
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "Phy Test",
)

# Gb/s of one lane at SDR; the kernel also prints it for every speed that it does not know.
_SDR_LANE = 2.5

# Bytes of an MTU. The largest of Linux is all ones. Source: include/uapi/linux/if_ether.h, ETH_MIN_MTU.
_MTUS = range(68, 0xFFFF)


class RdmaDevice(Struct, frozen=True):
    """An RDMA device. function: of its adapter, in sysfs. draft: the signals of the whole adapter."""

    name: str
    function: str
    ports: tuple[str, ...]
    draft: ObservationDraft


@source
class InfinibandSource:
    """Reads each port of each RDMA device, and its counters.

    Keeps which counters a device refused, while the device exists with the same node GUID and PCI address.
    """

    name = "infiniband"
    interval = 10.0
    deadline = 5.0
    paths: tuple[str, ...] = (_CLASS,)
    signals = signals_by_name(
        Signal("port.link_layer", "state", "InfiniBand, Ethernet (RoCE) or EFA"),
        Signal("port.state", "state", "logical state: DOWN, INIT, ARMED, ACTIVE"),
        Signal("port.phys_state", "state", "physical state: Polling, Disabled, LinkUp, LinkErrorRecovery, …"),
        Signal("port.up", "state", "whether the port is ACTIVE and LinkUp"),
        Signal("port.rate", "gauge", "rate of an active port, Gb/s"),
        Signal("port.lid", "state", "local identifier; 0 until a subnet manager gives one"),
        Signal("port.sm_lid", "state", "local identifier of the subnet manager; 0 if unknown"),
        Signal("port.device_type", "state", "type of the adapter, such as MT4129"),
        Signal("port.board", "state", "board id (PSID) of the adapter"),
        Signal("port.firmware", "state", "firmware version of the adapter"),
        Signal(
            "port.plane_rates", "state", "Gb/s of each plane of a port with several, or `down` or `unread`"
        ),
        Signal("port.pci", "state", "PCI address of the adapter's function"),
        Signal("port.netdev", "state", "network interface of the same function"),
        Signal("port.mtu", "state", "MTU of the network interface of a RoCE port, bytes"),
        Signal(
            "port.carrier_losses",
            "counter",
            "times that the interface lost its carrier",
            max_rate=max_rates.PORT_TRAININGS,
        ),
        TEMPERATURE,
        LIMIT,
        *PMA.values(),
        *MLX5.values(),
        *EFA.values(),
    )

    def __init__(self) -> None:
        self._pma, self._mlx5 = PMA, MLX5
        # Device → its identity, and the name of the error by group of counters.
        self._refused: dict[str, tuple[tuple[str, str], dict[str, str]]] = {}

    def select_counters(self, names: Container[str]) -> None:
        """From the next round on, read only these counters of InfiniBand and mlx5: each asks the adapter.

        Call it between two rounds, from any thread. Before the first call the source reads all counters.
        """
        self._pma, self._mlx5 = (
            {file: signal for file, signal in table.items() if signal.name in names} for table in (PMA, MLX5)
        )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        node = ObservationDraft(machine, self.name, targets.NODE)
        devices = node.list_targets(_CLASS, "port")
        if not devices and not node.unlisted:
            yield node.build(status="absent", detail=f"no RDMA device: {_CLASS} is empty or does not exist")
            return
        if devices is not None:
            self._refused = {
                device: refused for device, refused in self._refused.items() if device in devices
            }
        adapters = [_rdma_device(node, device) for device in devices or ()]
        planes = {adapter.function: adapter for adapter in adapters if _has_planes(adapter, adapters)}
        for adapter in adapters:
            if adapter not in planes.values():
                yield from self._device(node, adapter, planes.get(adapter.function))
        yield node.build()

    def _device(
        self, node: ObservationDraft, rdma_device: RdmaDevice, planes: RdmaDevice | None
    ) -> Iterator[Observation]:
        """Yield one observation for each port; each has the signals of the whole adapter too.

        planes: the RDMA device of the planes of the port, if it has several.
        """
        device, function, adapter = rdma_device.name, rdma_device.function, rdma_device.draft
        path = f"{_CLASS}/{device}"
        guid = _guid(adapter.read_text(f"{path}/node_guid") or "")
        vendor = adapter.read_text(f"{path}/device/vendor")
        # Its driver has both files for every device. A rule of udev may have renamed `mlx5_0` to `ibp3s0`.
        has_board = vendor == "0x15b3" or device.startswith("mlx5")
        model = adapter.read("port.device_type", f"{path}/hca_type", parse_model, required=has_board)
        adapter.read("port.board", f"{path}/board_id", parse_model, required=has_board)
        adapter.read("port.firmware", f"{path}/fw_ver", _firmware)
        address = targets.function_address(function)
        if address:
            adapter.signals["port.pci"] = address
        interfaces = adapter.list_names(f"{path}/device/net", "port.netdev")
        if interfaces:
            adapter.signals["port.netdev"] = interfaces[0]
        refused = self._refusals(device, (guid, function))
        read_transceiver(adapter, f"{path}/device", refused)
        efa = _is_efa(adapter, path, device, vendor)
        if efa:
            read_counters(adapter, f"{path}/hw_counters", EFA, refused)
        part = Component(id=guid, model=model or "") if guid or model else None
        if planes is not None:
            adapter.signals["port.plane_rates"] = " ".join(_plane_rates(planes))
        for port in rdma_device.ports:
            draft = ObservationDraft(node.machine, self.name, targets.port_target(device, port))
            draft.signals.update(adapter.signals)
            draft.unread.update(adapter.unread)
            directory = f"{path}/ports/{port}"
            if efa:
                # Its driver always reports ACTIVE, LinkUp and a rate: these values carry no information.
                draft.signals["port.link_layer"] = "EFA"
            else:
                _link(draft, directory)
                read_counters(draft, f"{directory}/counters", self._pma, refused)
            read_counters(draft, f"{directory}/hw_counters", EFA if efa else self._mlx5, refused)
            yield draft.build(part)

    def _refusals(self, device: str, identity: tuple[str, str]) -> dict[str, str]:
        """Return the name of the error by group of counters that this same device has refused before."""
        if self._refused.get(device, ("", {}))[0] != identity:
            self._refused[device] = (identity, {})
        return self._refused[device][1]


def _rdma_device(node: ObservationDraft, name: str) -> RdmaDevice:
    draft = ObservationDraft(node.machine, node.source, name)
    function = (draft.read_link(f"{_CLASS}/{name}/device", "port.pci") or "").rpartition("/")[2]
    ports = node.list_targets(f"{_CLASS}/{name}/ports", "port")
    if ports is None:
        # Every RDMA device has this directory: a device without it is being added or removed.
        node.unlisted.setdefault("port", f"{name}: it disappeared during the read")
    return RdmaDevice(name, function, ports or (), draft)


def _has_planes(device: RdmaDevice, devices: list[RdmaDevice]) -> bool:
    """Return whether the ports of a device are the planes of the one port of another.

    Both have the same PCI function. Source: Linux drivers/infiniband/hw/mlx5, devices of type SMI.
    """
    others = [other for other in devices if other.function == device.function and other.name != device.name]
    return bool(device.function) and len(device.ports) > 1 and [len(other.ports) for other in others] == [1]


def _plane_rates(planes: RdmaDevice) -> Iterator[str]:
    """Yield the rate of each plane in Gb/s, `down` or `unread`. A plane without a link has no known speed."""
    for port in planes.ports:
        draft = ObservationDraft(planes.draft.machine, planes.draft.source, planes.name)
        directory = f"{_CLASS}/{planes.name}/ports/{port}"
        _link(draft, directory)
        rate, is_up = draft.signals.get("port.rate"), draft.signals.get("port.up")
        if isinstance(rate, float):
            yield f"{rate:g}"
        elif is_up is False or (is_up and draft.read("rate", f"{directory}/rate", _has_speed) is False):
            yield "down"
        else:
            yield "unread"


def _has_speed(rate: str) -> bool:
    return parse_rate(rate) is not None


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return parse


def _numbered(values: tuple[str, ...]) -> Callable[[str], str]:
    """Return a parser of a value after its number: `4: ACTIVE`."""
    parse = _one_of(values)
    return lambda text: parse(text.partition(": ")[2])


def _parse_mtu(text: str) -> int:
    if (mtu := parse_count(text)) not in _MTUS:
        raise ValueError(text)
    return mtu


_LAYER = _one_of(("InfiniBand", "Ethernet"))
_STATE = _numbered(_STATES)
_PHYSICAL_STATE = _numbered(_PHYSICAL_STATES)


def is_up(state: str | None, phys_state: str | None) -> bool | None:
    """Return whether a port is ACTIVE and LinkUp; None if that is unknown."""
    if state not in {None, "ACTIVE"} or phys_state not in {None, "LinkUp"}:
        return False
    return None if state is None or phys_state is None else True


def parse_rate(text: str) -> float | None:
    """Return Gb/s of `400 Gb/sec (4X NDR)`; None for SDR, which is never trusted. Raises ValueError.

    Kernels print an unknown speed as SDR: `10 Gb/sec (4X SDR)`, older ones `10 Gb/sec (4X)`. A real SDR link
    reads the same, but SDR adapters are older than any supported GPU.
    """
    value, unit, rest = text.partition(" Gb/sec (")
    lanes, x, _ = rest.partition("X")
    if not unit or not x:
        raise ValueError(text)
    return None if parse_number(value) == _SDR_LANE * parse_count(lanes) else parse_number(value)


def _link(draft: ObservationDraft, directory: str) -> None:
    layer = draft.read("port.link_layer", f"{directory}/link_layer", _LAYER, required=True)
    state = draft.read("port.state", f"{directory}/state", _STATE, required=True)
    phys_state = draft.read("port.phys_state", f"{directory}/phys_state", _PHYSICAL_STATE, required=True)
    up = is_up(state, phys_state)
    if up is not None:
        draft.signals["port.up"] = up
    elif draft.unread.keys() & {"port.state", "port.phys_state"}:
        draft.mark_unread("the port's state could not be read", "port.up")
    if state == "ACTIVE":
        text = draft.read_text(f"{directory}/rate", "port.rate")
        if text is not None and draft.parse("port.rate", f"{directory}/rate", text, parse_rate) is None:
            draft.unread.setdefault(
                "port.rate",
                f"reads {text!r}, as for any speed that the kernel does not know: update its RDMA drivers",
            )
    if layer == "InfiniBand":
        draft.read("port.lid", f"{directory}/lid", lambda text: parse_count(text, 16))
        draft.read("port.sm_lid", f"{directory}/sm_lid", lambda text: parse_count(text, 16))
    if layer == "Ethernet" and "port.netdev" in draft.signals:
        interface = f"/sys/class/net/{draft.signals['port.netdev']}"
        draft.read("port.mtu", f"{interface}/mtu", _parse_mtu)
        # Kernels before 4.16 only count losses and gains together.
        draft.read("port.carrier_losses", f"{interface}/carrier_down_count", parse_counter)
        if "port.carrier_losses" not in draft.signals.keys() | draft.unread.keys():
            draft.read(
                "port.carrier_losses", f"{interface}/carrier_changes", lambda text: parse_counter(text) // 2
            )


def _is_efa(adapter: ObservationDraft, path: str, device: str, vendor: str | None) -> bool:
    if vendor:
        return vendor == "0x1d0f"
    driver = (adapter.read_link(f"{path}/device/driver") or "").rpartition("/")[2]
    return driver == "efa" if driver else device.startswith("rdmap")


def _firmware(text: str) -> str | None:
    return parse_model(text) if text.strip("0.") else None


def _guid(text: str) -> str:
    """Return a node GUID; empty if it is all zeros, as on EFA, or invalid."""
    digits = text.replace(":", "").lower()
    return text if len(digits) == 16 and set(digits) <= set("0123456789abcdef") and digits.strip("0") else ""
