from __future__ import annotations

import pytest

from nodeguard.derive.host import (
    driver_branch,
    driver_changing_derivation,
    last_driver_change,
    service_derivations,
    track_starts,
)
from nodeguard.model.observation import Event, Observation
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from tests.derive.readings import derived, expecting, machine, observe, unread

KUBELET = "service/kubelet"
MANAGER = "service/nvidia-fabricmanager"


@pytest.mark.parametrize(
    ("service", "role"),
    [
        ("kubelet", "kubelet"),
        ("rke2-agent", "kubelet"),
        ("crio", "runtime"),
        ("nvidia-fabricmanager", "fabric-manager"),
        ("nvidia-imex", "imex"),
        ("sshd", "other"),
    ],
)
def test_a_service_has_a_role(service: str, role: str) -> None:
    latest = machine(observe("services", f"service/{service}", {"service.running": True}))
    assert derived(latest, *service_derivations({}, None))[f"service/{service}"] == {"service.role": role}


def test_only_starts_between_two_readings_count_as_restarts() -> None:
    before: dict[str, tuple[int, int]] = {}
    counted = []
    for ticks in (500, 500, 700, None, 700, 900):
        latest = machine(
            observe("services", KUBELET, {} if ticks is None else {"service.start_ticks": ticks})
        )
        before = track_starts(latest, before)
        counted.append(before[KUBELET][1])
    assert counted == [0, 0, 1, 1, 1, 2]
    latest = machine(observe("services", KUBELET, {"service.running": True}))
    assert derived(latest, *service_derivations(before, None))[KUBELET]["service.restarts"] == 2


def fabric_manager(
    switches: int, *, platform: bool | None = None, container: bool = False, **signals: Scalar
) -> tuple[Scalar, Scalar]:
    """Whether the node needs a fabric manager, and whether one runs."""
    rows = [
        observe("pci", "node", {"nvswitch.pci_count": switches}),
        observe("services", "node", {"driver.container": container}),
        observe("services", KUBELET, {"service.running": True}),
    ]
    if signals:
        rows.append(
            observe("services", MANAGER, {f"service.{name}": value for name, value in signals.items()})
        )
    make: Platform | None = None if platform is None else expecting(fabric_manager=platform)
    node = derived(machine(*rows, empty=("services",)), *service_derivations({}, make))["node"]
    return node["fabric_manager.needed"], node["fabric_manager.running"]


def test_fabric_manager_is_needed_if_the_platform_requires_it() -> None:
    assert fabric_manager(0, platform=True) == (True, False)
    assert fabric_manager(4, platform=False, enabled=True, running=True) == (False, True)


def test_fabric_manager_is_needed_without_a_platform_if_it_is_set_up_and_nvswitches_exist() -> None:
    assert fabric_manager(4, enabled=True, running=False) == (True, False)
    assert fabric_manager(4, enabled=False, running=False) == (False, False)
    assert fabric_manager(4) == (False, False)
    assert fabric_manager(0, enabled=True, running=True) == (False, True)


def test_fabric_manager_in_a_driver_container_is_not_missing() -> None:
    assert fabric_manager(4, platform=True, container=True) == (False, False)
    assert fabric_manager(4, platform=True, container=True, enabled=True, running=False) == (True, False)


def test_fabric_manager_is_not_missing_without_any_visible_service() -> None:
    latest = machine(observe("services", "node", {"driver.container": False}))
    assert derived(latest, *service_derivations({}, expecting(fabric_manager=True))) == {}


@pytest.mark.parametrize("cut", [(), ("services",)])
def test_fabric_manager_is_not_needed_when_nothing_was_read(cut: tuple[str, ...]) -> None:
    latest = machine(observe("pci", "node", {"nvswitch.pci_count": 4}), cut=cut)
    assert derived(latest, *service_derivations({}, expecting(fabric_manager=True))) == {}


@pytest.mark.parametrize(
    "fabric_manager",
    [
        Observation(
            "services", MANAGER, signals={"service.enabled": True}, unreadable={"service.running": "refused"}
        ),
        Observation("services", NODE, unlisted={"service": "refused"}),
    ],
)
def test_unreadable_fabric_manager_is_not_missing(fabric_manager: Observation) -> None:
    kubelet = observe("services", KUBELET, {"service.running": True})
    switches = observe("pci", NODE, {"nvswitch.pci_count": 4})
    latest = machine(kubelet, switches, fabric_manager)
    assert (
        unread(latest, *service_derivations({}, expecting(fabric_manager=True)))[NODE][
            "fabric_manager.running"
        ]
        == "refused"
    )
    assert latest.derived.get(NODE, {}).get("fabric_manager.running") is None


OLD: dict[str, Scalar] = {"host.uptime": 90_000.0, "driver.module_state": "live"}


@pytest.mark.parametrize(
    ("signals", "moved", "changes"),
    [
        (OLD, None, False),
        ({**OLD, "host.uptime": 599.0}, None, True),
        ({**OLD, "host.uptime": 600.0}, None, False),
        ({**OLD, "driver.module_state": "coming"}, None, True),
        ({**OLD, "driver.module_state": "going"}, None, True),
        (OLD, 90_000.0 - 599, True),
        (OLD, 90_000.0 - 600, False),
        ({}, None, False),
    ],
)
def test_driver_is_changing_while_it_starts(
    signals: dict[str, Scalar], moved: float | None, changes: bool
) -> None:
    latest = machine(observe("host", "node", signals), at=90_000.0)
    assert derived(latest, driver_changing_derivation(moved)) == {"node": {"driver.changing": changes}}


def test_machine_with_unknown_uptime_may_have_just_booted() -> None:
    host = Observation(
        "host", "node", signals={"driver.module_state": "live"}, unreadable={"host.uptime": "refused"}
    )
    assert unread(machine(host), driver_changing_derivation(None)) == {"node": {"driver.changing": "refused"}}
    assert derived(machine(host), driver_changing_derivation(99.0)) == {"node": {"driver.changing": True}}


def test_last_driver_change_is_the_latest_event() -> None:
    events = [Event("driver.load", 30), Event("driver.unload", 40), Event("a.happened", 90)]
    assert last_driver_change(None, events) == 40
    assert last_driver_change(50, events) == 50
    assert last_driver_change(50, ()) == 50
    assert last_driver_change(None, [Event("a.happened", 90)]) is None


@pytest.mark.parametrize(
    ("signals", "number"),
    [
        ({"driver.version": "580.95.05"}, 580),
        ({"nvml.driver_version": "570.86.15"}, 570),
        ({"driver.version": "580.95.05", "nvml.driver_version": "570.86.15"}, 580),
        ({"driver.version": "unknown"}, None),
        ({}, None),
    ],
)
def test_driver_branch_is_the_first_number_of_the_version(
    signals: dict[str, Scalar], number: int | None
) -> None:
    assert driver_branch(machine(observe("host", "node", signals))) == number
