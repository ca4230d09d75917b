from __future__ import annotations

import pytest

from nodeguard.derive.pcie import pcie_derivations
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from tests.derive.readings import GPUS, derived, machine, observe, unread

L4: dict[str, Scalar] = {"pci.vendor": "10de", "pci.device": "27b8", "pci.link.width_max": 16}


def l4_card(gpu: str, width: int, above: int | None = None, **more: Scalar) -> Observation:
    port: dict[str, Scalar] = {} if above is None else {"pci.upstream.width_max": above}
    return observe("pci", gpu, {**L4, "pci.link.width": width, **port, **more})


@pytest.mark.parametrize(("above", "lanes"), [(None, None), (16, 16), (8, 8), (32, 16)])
def test_slot_width_is_the_minimum_of_both_ends_if_both_are_known(
    above: int | None, lanes: int | None
) -> None:
    signals = derived(machine(l4_card(GPUS[0], 8, above)), *pcie_derivations()).get(GPUS[0], {})
    assert signals.get("pci.link.width_slot") == lanes


def test_card_is_compared_only_with_cards_of_its_make() -> None:
    adapter = observe(
        "pci", "port/mlx5_0/1", {"pci.vendor": "15b3", "pci.device": "1021", "pci.link.width": 16}
    )
    latest = machine(l4_card(GPUS[0], 8), l4_card(GPUS[1], 4), adapter)
    result = derived(latest, *pcie_derivations())
    assert result[GPUS[0]]["pci.link.width_alike"] == 4
    assert result[GPUS[1]]["pci.link.width_alike"] == 8
    assert "pci.link.width_alike" not in result.get("port/mlx5_0/1", {})


def test_unreadable_slot_has_no_comparison() -> None:
    dark = Observation(
        "pci", GPUS[0], signals={**L4, "pci.link.width": 8}, unreadable={"pci.upstream.width_max": "refused"}
    )
    assert unread(machine(dark), *pcie_derivations()) == {
        GPUS[0]: {"pci.link.width_slot": "refused", "pci.link.slot": "refused"}
    }


@pytest.mark.parametrize(("above", "slot"), [(None, "unknown"), (16, "16"), (8, "8")])
def test_slot_without_a_port_above_is_unknown(above: int | None, slot: str) -> None:
    assert derived(machine(l4_card(GPUS[0], 8, above)), *pcie_derivations())[GPUS[0]]["pci.link.slot"] == slot


@pytest.mark.parametrize(
    ("widths", "usual"),
    [
        ((8, 16, 16, 16), 16),
        ((8, 8, 16, 16), None),
        ((8, 16, 16), None),
        ((16, 8, 8, 8), 8),
    ],
)
def test_usual_width_is_that_of_most_of_at_least_four(widths: tuple[int, ...], usual: int | None) -> None:
    cards = [l4_card(gpu, width) for gpu, width in zip(GPUS, widths, strict=False)]
    assert derived(machine(*cards), *pcie_derivations())[GPUS[0]].get("pci.link.width_usual") == usual


def test_usual_width_of_a_port_with_an_unread_role_is_unknown() -> None:
    """It may be one of a function that manages NVSwitches, which has fewer lanes."""
    cx7: dict[str, Scalar] = {"pci.vendor": "15b3", "pci.device": "1021"}
    ports = [f"port/mlx5_{number}/1" for number in range(4)]
    rows = [observe("pci", port, {**cx7, "pci.link.width": 16}) for port in ports[1:]]
    signals = {**cx7, "pci.link.width": 2}
    role = "pci.manages_nvswitches"
    latest = machine(*rows, Observation("pci", ports[0], signals=signals, unreadable={role: "refused"}))
    assert unread(latest, *pcie_derivations())[ports[0]]["pci.link.width_usual"] == "refused"
    latest = machine(*rows, observe("pci", ports[0], {**signals, role: False}))
    assert derived(latest, *pcie_derivations())[ports[0]]["pci.link.width_usual"] == 16


def test_usual_width_of_a_hidden_link_is_that_of_nvml() -> None:
    make: dict[str, Scalar] = {"pci.vendor": "10de", "pci.device": "2330"}
    bus = [observe("pci", gpu, make) for gpu in GPUS]
    nvml = [observe("nvml", gpu, {"gpu.pcie.width": 8 if gpu == GPUS[0] else 16}) for gpu in GPUS]
    signals = derived(machine(*bus, *nvml), *pcie_derivations())[GPUS[0]]
    assert signals == {"pci.link.slot": "unknown", "pci.link.width_usual": 16}
