"""A check that fires on more nodes than any failure domain explains, as the diagnosis sees its votes."""

from __future__ import annotations

import random

import pytest

from nodeguard.model.diagnosis import STALE_CHECK
from tests.fleet.diagnosis.scene import Voters


def test_a_stale_fleet_is_the_fault_of_the_observer() -> None:
    fleet = Voters()
    fleet.show(random.Random(1).sample(fleet.nodes, 400), STALE_CHECK)
    fleet.after(20.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {STALE_CHECK: ""})
    assert not fleet.diagnosis.suppressed_checks[STALE_CHECK].confirmed


@pytest.mark.parametrize("check", ["gpu-lost", "port-down"])
def test_a_check_that_fires_everywhere_is_suppressed(check: str) -> None:
    fleet = Voters()
    fleet.show(random.Random(1).sample(fleet.nodes, 200), check, every=0.05)
    fleet.after(20.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {check: ""})
    suppressed = fleet.diagnosis.suppressed_checks[check]
    assert (suppressed.limit, suppressed.within, suppressed.confirmed) == (5, 600.0, False)
    assert fleet.diagnosis.checks.suppression(check, "3-3-3") == suppressed
    fleet.show(fleet.leaf(1, 3), check)
    fleet.after(60.0)
    assert fleet.degraded == []


def test_a_confirmed_check_is_suppressed_too() -> None:
    fleet = Voters()
    nodes = random.Random(1).sample(fleet.nodes, 20)
    fleet.confirmed = set(nodes[:8])
    fleet.show(nodes, "gpu-lost")
    fleet.after(20.0)
    assert fleet.diagnosis.suppressed_checks["gpu-lost"].confirmed


def test_a_check_that_fires_on_one_version_is_suppressed_there() -> None:
    fleet = Voters()
    new = [uid for uid in fleet.nodes if uid.endswith(("-5", "-6"))]
    random.Random(1).shuffle(new)
    for uid in new:
        fleet.place(uid, driver="590")
    fleet.show(new[:30], "gpu-lost", every=1.0)
    fleet.after(20.0)
    assert fleet.suppressed == {"gpu-lost": "driver/590"}
    assert fleet.diagnosis.checks.suppression("gpu-lost", new[40]) is not None
    assert fleet.diagnosis.checks.suppression("gpu-lost", "0-0-0") is None


def test_a_rack_with_a_new_version_is_not_degraded() -> None:
    fleet = Voters()
    rack = fleet.leaf(1, 3, 8)
    for uid in rack:
        fleet.place(uid, agent="2")
    fleet.show(rack, "gpu-thermal-slowdown")
    fleet.after(20.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {"gpu-thermal-slowdown": "agent/2"})


def test_few_nodes_that_fail_soon_after_they_receive_a_version_have_its_fault() -> None:
    """Three of 32 nodes are less than the share of the class, and a rollout takes hours."""
    fleet = Voters()
    for number, uid in enumerate([*fleet.leaf(0, 0), *fleet.leaf(3, 3)]):
        fleet.place(uid, driver="590")
        fleet.after(600.0)
        if number % 12 == 0:
            fleet.show([uid], "driver-library-mismatch")
            fleet.after(20.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {"driver-library-mismatch": "driver/590"})


def test_few_nodes_that_fail_long_after_they_received_a_version_do_not_show_its_fault() -> None:
    fleet = Voters()
    for uid in (*fleet.leaf(0, 0), *fleet.leaf(3, 3)):
        fleet.place(uid, driver="590")
        fleet.after(600.0)
    for uid in ("0-0-0", "3-3-0", "3-3-8"):
        fleet.after(7_200.0)
        fleet.show([uid], "driver-library-mismatch")
    assert (fleet.degraded, fleet.suppressed) == ([], {})


def test_weak_candidates_in_many_pods_suppress_their_check() -> None:
    fleet = Voters()
    fleet.show([uid for pod in range(4) for uid in fleet.leaf(pod, 5, 3)])
    fleet.after(30.0)
    assert (fleet.degraded, fleet.suppressed) == ([], {"port-down": ""})


def test_a_suppression_ends_when_the_check_is_quiet() -> None:
    fleet = Voters()
    nodes = random.Random(1).sample(fleet.nodes, 20)
    fleet.show(nodes, "gpu-lost")
    fleet.after(3_600.0)
    assert fleet.suppressed == {"gpu-lost": ""}
    fleet.over(nodes, "gpu-lost")
    fleet.after(120.0)
    assert fleet.suppressed == {}


@pytest.mark.parametrize(
    ("topology", "seconds", "expected"),
    [
        ("catalogue", 60.0, {"gpu-reset-required": "catalogue/2"}),
        ("agent", 600.0, {"gpu-reset-required": "agent/2"}),
        ("driver", 60.0, {}),  # A new driver may break its nodes.
        ("catalogue", 1_200.0, {}),
    ],
)
def test_three_nodes_are_enough_soon_after_a_new_catalogue_or_agent(
    topology: str, seconds: float, expected: dict[str, str]
) -> None:
    fleet = Voters()
    for uid in fleet.nodes:
        fleet.place(uid, catalogue="1")
    fleet.after(86_400.0)
    for uid in fleet.nodes:
        fleet.place(uid, **{"catalogue": "1", topology: "2"})
    fleet.after(seconds)
    fleet.show([fleet.leaf(pod, 0)[0] for pod in range(3)], "gpu-reset-required", every=20.0)
    fleet.after(60.0)
    assert fleet.suppressed == expected


def test_two_nodes_after_a_new_catalogue_have_faults_of_their_own() -> None:
    fleet = Voters()
    for version in "12":
        for uid in fleet.nodes:
            fleet.place(uid, catalogue=version)
    fleet.show([fleet.leaf(pod, 0)[0] for pod in range(2)], "gpu-reset-required", every=20.0)
    fleet.after(60.0)
    assert fleet.suppressed == {}
