from __future__ import annotations

import pytest

from nodeguard.derive.derive import overdue_readings
from nodeguard.model.observation import Observation, Reading


@pytest.mark.parametrize(("now", "late"), [(30.0, []), (41.0, ["not read for 41 s"])])
def test_a_reading_holds_as_long_as_it_says(now: float, late: list[str]) -> None:
    latest = [Reading("nvml", 0.0, (Observation("nvml", "node"),), valid_for=30.0), Reading("pci", 0.0, ())]
    result = overdue_readings(latest, now)
    assert [observation.detail for reading in result for observation in reading.observations] == late
    assert all(reading.source == "nvml" and not reading.complete and reading.at == now for reading in result)
    assert overdue_readings(result, now + 1000) == []
