from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator import incident_metrics
from nodeguard.aggregator.incident_metrics import incident_families
from nodeguard.aggregator.service_collector import count_out_of_service
from nodeguard.model.finding import Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Mode, ModeRule
from tests.fleet.leaves import FIRST, faulty
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
    assert [(labels["node"], labels.get("injected")) for labels in labels_of(fleet)] == [
        ("node-5", None),
        ("node-0", "true"),
    ]


def test_an_incident_has_the_mode_of_its_mark() -> None:
    rules = (ModeRule(Mode.ENFORCE, checks=("gpu-lost",), marks=("quarantine",)),)
    fleet = Fleet(8, replace(AT_ONCE, mode=Mode.OBSERVE, modes=rules))
    fleet.report(0, finding())
    fleet.report(1, finding(health=Health.SUSPECT))
    fleet.carry_out()
    assert [(labels["node"], labels["mode"]) for labels in labels_of(fleet)] == [
        ("node-0", "enforce"),
        ("node-1", "observe"),
    ]


def test_an_incident_has_what_the_text_of_an_alert_needs() -> None:
    fleet = faulty()
    fleet.planner.state.update_jobs("uid-9", (NodeJob("team-a/train"),))
    fleet.report(9, finding(hardware=Hardware(5, "165", module_id=6)))
    fleet.carry_out()
    node, domain = labels_of(fleet)
    assert (domain["target"], domain["owner"], domain["state"]) == (FIRST, "the network team", "marked")
    assert (node["part"], node["jobs"]) == ("GPU 5 (0000:3b:00, serial 165, module 6)", "team-a/train")
    assert (domain["scope"], node["scope"]) == (f"8 nodes of {FIRST}", "node node-9")
    assert "owner" not in node


def labels_of(fleet: Fleet) -> list[dict[str, str]]:
    [family] = (family for family in incident_families(fleet.planner) if family.name.endswith("_incident"))
    return [sample.labels for sample in family.samples]


def test_stale_agents_of_nodes_that_may_be_powered_off_are_out_of_service() -> None:
    fleet = Fleet(8)
    fleet.change(0, ready=False)
    fleet.change(1, unschedulable=True)
    fleet.change(2, annotations={MAINTENANCE_ANNOTATION: "a new mainboard"})
    fleet.after(60.0, quiet=[f"uid-{number}" for number in range(4)])
    fleet.plan()
    assert fleet.planner.stale_agents.stale == {f"uid-{number}" for number in range(4)}
    assert count_out_of_service(fleet.planner) == 3
