from __future__ import annotations

import pytest

from nodeguard.derive.gpus import pcie_derivations
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from tests.derive.look import GPUS, derived, machine, seen, unread

L4: dict[str, Scalar] = {"pci.vendor": "10de", "pci.device": "27b8", "pci.link.width_max": 16}


def card(gpu: str, width: int, above: int | None = None, **more: Scalar) -> Observation:
    port: dict[str, Scalar] = {} if above is None else {"pci.upstream.width_max": above}
    return seen("pci", gpu, {**L4, "pci.link.width": width, **port, **more})


@pytest.mark.parametrize(("above", "lanes"), [(None, 16), (16, 16), (8, 8), (32, 16)])
def test_a_slot_gives_what_both_ends_are_capable_of(above: int | None, lanes: int) -> None:
    assert (
        derived(machine(card(GPUS[0], 8, above)), *pcie_derivations())[GPUS[0]]["pci.link.width_slot"]
        == lanes
    )


def test_a_card_is_compared_with_others_of_its_make_alone() -> None:
    adapter = seen("pci", "port/mlx5_0/1", {"pci.vendor": "15b3", "pci.device": "1021", "pci.link.width": 16})
    look = machine(card(GPUS[0], 8), card(GPUS[1], 4), adapter)
    result = derived(look, *pcie_derivations())
    assert result[GPUS[0]]["pci.link.width_alike"] == 4
    assert result[GPUS[1]]["pci.link.width_alike"] == 8
    assert "pci.link.width_alike" not in result.get("port/mlx5_0/1", {})


def test_a_slot_of_unknown_width_is_unknown() -> None:
    dark = Observation(
        "pci", GPUS[0], signals={**L4, "pci.link.width": 8}, unreadable={"pci.upstream.width_max": "refused"}
    )
    assert unread(machine(dark), *pcie_derivations()) == {GPUS[0]: {"pci.link.width_slot": "refused"}}
