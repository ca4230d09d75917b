from __future__ import annotations

import pytest

from nodeguard.derive.network_ports import PORT_COUNT_DERIVATION, is_network_port
from nodeguard.derive.ports import port_derivations
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from tests.derive.readings import derived, machine, observe, unread

PORT = "port/p0/1"


def test_ports_are_counted_without_those_of_nvswitches() -> None:
    rows = [observe("infiniband", f"port/p{number}/1", {"port.up": True}) for number in range(3)]
    rows.append(observe("infiniband", "nvswitch/0000:05:00", {"port.up": False}))
    assert derived(machine(*rows), PORT_COUNT_DERIVATION) == {"node": {"rdma.port_count": 3}}
    assert derived(machine(empty=("infiniband",)), PORT_COUNT_DERIVATION) == {}


def test_port_with_an_unread_role_is_not_expected() -> None:
    reason = {"pci.manages_nvswitches": "permission denied: run as root"}
    rows = [
        observe("infiniband", PORT, {"port.up": False, "port.up~peers": True}),
        Observation("pci", PORT, signals={"pci.present": True}, unreadable=reason),
    ]
    unknown = unread(machine(*rows), *port_derivations(None, {}), PORT_COUNT_DERIVATION)
    assert set(unknown[PORT].values()) == set(unknown["node"].values()) == set(reason.values())
    assert not derived(machine(*rows), *port_derivations(None, {})).get(PORT)


@pytest.mark.parametrize(
    ("pci", "is_expected"),
    [
        ([observe("pci", PORT, {"pci.present": True})], True),
        ([observe("pci", "pci/0000:05:00.0", {"pci.present": True})], True),
        ([observe("pci", "node", {"gpu.pci_count": 8})], False),
        ([Observation("pci", "node", unlisted={"pci": "refused"})], False),
        ([], True),
    ],
)
def test_port_without_its_function_on_the_bus_is_not_expected(
    pci: list[Observation], is_expected: bool
) -> None:
    signals: dict[str, Scalar] = {"port.up": False, "port.up~peers": True, "port.link_layer": "InfiniBand"}
    port = observe("infiniband", PORT, {**signals, "port.pci": "0000:05:00.0"})
    expected = derived(machine(port, *pci), *port_derivations(None, {})).get(PORT, {})
    assert expected.get("port.expected", False) is is_expected


def port(name: str, function: str, board: str, *, vpd: bool = False) -> list[Observation]:
    """A port of InfiniBand, and its function."""
    signals: dict[str, Scalar] = {"port.link_layer": "InfiniBand", "port.board": board}
    return [
        observe("infiniband", f"port/{name}/1", {**signals, "port.pci": function}),
        observe("pci", f"port/{name}/1", {"pci.present": True, "pci.vpd": vpd}),
    ]


# Adapters of another link layer, as on clouds with RoCE or EFA.
ETHERNET = [
    observe("infiniband", f"port/e{at}/1", {"port.link_layer": "Ethernet", "port.board": "e"})
    for at in range(3)
]
GPUS = [observe("nvml", f"gpu/0000:{bus:02x}:00", {"gpu.index": bus}) for bus in range(0x20, 0x28)]
MANAGERS = [row for at in range(4) for row in port(f"p{at}", f"0000:0{at}:00.0", "b")]
NETWORK = [row for at in range(3) for row in port(f"n{at}", f"0000:1{at}:00.0", "a")]


def test_port_of_an_unread_make_is_unknown() -> None:
    unknown = Observation(
        "infiniband",
        PORT,
        signals={"port.link_layer": "InfiniBand", "port.pci": "0000:05:00.0"},
        unreadable={"port.board": "refused"},
    )
    function = observe("pci", PORT, {"pci.present": True, "pci.vpd": False})
    assert unread(machine(unknown, function, *NETWORK), PORT_COUNT_DERIVATION) == {
        "node": {"rdma.port_count": "refused"}
    }


@pytest.mark.parametrize(
    ("rows", "is_network"),
    [
        (port("p0", "0000:05:00.0", "a"), True),
        ([*port("p0", "0000:05:00.0", "b"), *ETHERNET], False),
        ([*port("p0", "0000:05:00.0", "a"), *port("p1", "0000:05:00.1", "a")], True),
        ([row for at in range(4) for row in port(f"p{at}", f"0000:05:00.{at}", "a")], False),
        ([*port("p0", "0000:05:00.0", "b"), *NETWORK], False),
        ([*(row for at in range(4) for row in port(f"p{at}", f"0000:0{at}:00.0", "a")), *GPUS], False),
        ([*(row for at in range(4) for row in port(f"p{at}", f"0000:0{at}:00.0", "a")), *GPUS[:4]], True),
        ([*MANAGERS, *NETWORK, *GPUS], False),
        ([*MANAGERS, *NETWORK, *port("n3", "0000:13:00.0", "a"), *GPUS], False),
        ([*port("p0", "0000:05:00.0", "a"), *NETWORK[:4], *GPUS[:4]], True),
        ([*port("p0", "0000:05:00.0", "b", vpd=True), *NETWORK], True),
        ([*port("p0", "0000:05:00.0", "a"), *NETWORK], True),
    ],
)
def test_port_without_vital_product_data_is_judged_by_its_make_and_device(
    rows: list[Observation], is_network: bool
) -> None:
    assert is_network_port(machine(*rows), PORT) is is_network
