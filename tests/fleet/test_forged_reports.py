"""What the report of one node says of checks changes no decision about another node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fleet.leaves import LEAF, fails, fleet, wait
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import POLICY

QUARANTINED = "nodeguard.dev/quarantine=gpu-bus"
DOMAIN = "nodeguard.dev/domain-degraded=fabric"


@pytest.fixture(autouse=True)
def _topologies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "topologies", {"gpu-lost": (), "port-down": ("fabric",)})


@pytest.mark.parametrize("is_forged", [False, True])
def test_a_degraded_domain_explains_no_fault_that_only_one_report_calls_shared(is_forged: bool) -> None:
    made = fleet(80, POLICY)
    if is_forged:
        made.report(70, finding(topologies=("fabric",)))
    fails(made)
    wait(made, 60.0)
    made.report(1, *made.reports["uid-1"].findings, finding(age=0.0))
    wait(made, 60.0)
    assert made.taints(1) == [DOMAIN, QUARANTINED]


def test_the_votes_of_a_report_are_those_of_its_check() -> None:
    made = fleet(80, POLICY)
    for number in range(LEAF):
        made.report(number, finding(topologies=("fabric", "rack", "power")))
    wait(made, 60.0)
    assert not made.planner.diagnosis.degraded_domains


def test_a_check_that_is_in_no_catalogue_votes_as_reported() -> None:
    made = fleet(80, POLICY)
    for number in range(LEAF):
        made.report(number, replace(finding("site-link", age=0.0), topologies=("fabric",)))
    wait(made, 60.0)
    assert made.planner.diagnosis.degraded_domains
