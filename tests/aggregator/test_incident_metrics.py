from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator import incident_metrics
from nodeguard.aggregator.incident_metrics import incident_families
from nodeguard.aggregator.service_collector import count_out_of_service
from nodeguard.model.finding import Health
from nodeguard.model.mark import MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Mode, ModeRule
from tests.fleet.scene import AT_ONCE, Fleet, finding
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


def test_an_incident_has_the_mode_of_its_mark() -> None:
    rules = (ModeRule(Mode.ENFORCE, checks=("gpu-lost",), marks=("quarantine",)),)
    fleet = Fleet(8, replace(AT_ONCE, mode=Mode.OBSERVE, modes=rules))
    fleet.report(0, finding())
    fleet.report(1, finding(health=Health.SUSPECT))
    fleet.carry_out()
    [family] = (family for family in incident_families(fleet.planner) if family.name.endswith("_incident"))
    assert [(sample.labels["node"], sample.labels["mode"]) for sample in family.samples] == [
        ("node-0", "enforce"),
        ("node-1", "observe"),
    ]


def test_stale_agents_of_nodes_that_may_be_powered_off_are_out_of_service() -> None:
    fleet = Fleet(8)
    fleet.change(0, ready=False)
    fleet.change(1, unschedulable=True)
    fleet.change(2, annotations={MAINTENANCE_ANNOTATION: "a new mainboard"})
    fleet.after(60.0, quiet=[f"uid-{number}" for number in range(4)])
    fleet.plan()
    assert fleet.planner.stale_agents.stale == {f"uid-{number}" for number in range(4)}
    assert count_out_of_service(fleet.planner) == 3
