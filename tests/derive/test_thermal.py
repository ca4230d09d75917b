from __future__ import annotations

import pytest

from nodeguard.derive.gpus import THERMAL_DERIVATIONS
from nodeguard.model.signal import Scalar
from tests.derive.look import GPUS, derived, machine, seen

GPU = "gpu.temperature"
MEMORY = "gpu.memory.temperature"


def margins(signals: dict[str, Scalar]) -> dict[str, Scalar]:
    return derived(machine(seen("nvml", GPUS[0], signals)), *THERMAL_DERIVATIONS).get(GPUS[0], {})


@pytest.mark.parametrize(
    ("signals", "margin"),
    [
        ({f"{GPU}.limit_distance": 20}, 20),
        ({f"{GPU}.limit_distance": 20, f"{GPU}.slowdown_distance": -2}, 22),
        ({f"{GPU}.limit_distance": -2, f"{GPU}.slowdown_distance": -2}, 0),
        ({GPU: 61, f"{GPU}.slowdown": 89}, 28),
        ({GPU: 61, f"{GPU}.slowdown": 89, f"{GPU}.limit_distance": 20}, 20),
        ({GPU: 61, f"{GPU}.slowdown": 0}, None),
        ({GPU: 61}, None),
        ({f"{GPU}.slowdown": 89}, None),
    ],
)
def test_the_margin_is_the_same_whatever_the_model_reports(
    signals: dict[str, Scalar], margin: float | None
) -> None:
    assert margins(signals).get("gpu.temperature.margin") == margin


@pytest.mark.parametrize(
    ("signals", "margin"),
    [
        ({MEMORY: 90, f"{MEMORY}_max": 105}, 15),
        ({MEMORY: 90, f"{MEMORY}_max": 0}, None),
        ({MEMORY: 90}, None),
    ],
)
def test_the_margin_of_memory(signals: dict[str, Scalar], margin: float | None) -> None:
    assert margins(signals).get("gpu.memory.temperature_margin") == margin
