from __future__ import annotations

import pytest

from nodeguard.aggregator import incident_metrics
from nodeguard.aggregator.incident_metrics import incident_families
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_injection import ALLOWED, inject


def test_injected_faults_take_no_series_of_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_metrics, "_MAX_INCIDENTS", 2)
    fleet = Fleet(8, ALLOWED)
    for number in range(3):
        inject(fleet, "gpu-lost", number=number)
    fleet.carry_out()
    fleet.after(5.0)
    fleet.report(5, finding(age=0.0))
    fleet.carry_out()
    [family] = (family for family in incident_families(fleet.planner) if family.name.endswith("_incident"))
    assert [(sample.labels["node"], sample.labels.get("injected")) for sample in family.samples] == [
        ("node-5", None),
        ("node-0", "true"),
    ]
