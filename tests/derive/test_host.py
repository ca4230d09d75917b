from __future__ import annotations

import pytest

from nodeguard.derive.host import service_derivations, track_starts
from nodeguard.model.observation import Observation
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from tests.derive.look import derived, expecting, machine, seen, unread

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
    look = machine(seen("services", f"service/{service}", {"service.running": True}))
    assert derived(look, *service_derivations({}, None))[f"service/{service}"] == {"service.role": role}


def test_only_starts_that_were_seen_count() -> None:
    before: dict[str, tuple[int, int]] = {}
    counted = []
    for ticks in (500, 500, 700, None, 700, 900):
        look = machine(seen("services", KUBELET, {} if ticks is None else {"service.start_ticks": ticks}))
        before = track_starts(look, before)
        counted.append(before[KUBELET][1])
    assert counted == [0, 0, 1, 1, 1, 2]
    look = machine(seen("services", KUBELET, {"service.running": True}))
    assert derived(look, *service_derivations(before, None))[KUBELET]["service.restarts"] == 2


def manager(
    switches: int, *, platform: bool | None = None, container: bool = False, **signals: Scalar
) -> tuple[Scalar, Scalar]:
    """Whether the node needs a fabric manager, and whether one runs."""
    rows = [
        seen("pci", "node", {"nvswitch.pci_count": switches}),
        seen("services", "node", {"driver.container": container}),
        seen("services", KUBELET, {"service.running": True}),
    ]
    if signals:
        rows.append(seen("services", MANAGER, {f"service.{name}": value for name, value in signals.items()}))
    make: Platform | None = None if platform is None else expecting(fabric_manager=platform)
    node = derived(machine(*rows, empty=("services",)), *service_derivations({}, make))["node"]
    return node["fabric_manager.needed"], node["fabric_manager.running"]


def test_a_fabric_manager_is_needed_where_the_platform_says_so() -> None:
    assert manager(0, platform=True) == (True, False)
    assert manager(4, platform=False, enabled=True, running=True) == (False, True)


def test_without_a_platform_it_is_needed_where_there_are_switches_and_it_was_set_up() -> None:
    assert manager(4, enabled=True, running=False) == (True, False)
    assert manager(4, enabled=False, running=False) == (False, False)
    assert manager(4) == (False, False)
    assert manager(0, enabled=True, running=True) == (False, True)


def test_one_in_a_driver_container_is_not_missed() -> None:
    assert manager(4, platform=True, container=True) == (False, False)
    assert manager(4, platform=True, container=True, enabled=True, running=False) == (True, False)


def test_what_sees_no_service_at_all_misses_none() -> None:
    look = machine(seen("services", "node", {"driver.container": False}))
    assert derived(look, *service_derivations({}, expecting(fabric_manager=True))) == {}


@pytest.mark.parametrize("cut", [(), ("services",)])
def test_nothing_is_needed_where_nobody_could_look(cut: tuple[str, ...]) -> None:
    look = machine(seen("pci", "node", {"nvswitch.pci_count": 4}), cut=cut)
    assert derived(look, *service_derivations({}, expecting(fabric_manager=True))) == {}


@pytest.mark.parametrize(
    "manager",
    [
        Observation(
            "services", MANAGER, signals={"service.enabled": True}, unreadable={"service.running": "refused"}
        ),
        Observation("services", NODE, unlisted={"service": "refused"}),
    ],
)
def test_a_fabric_manager_that_could_not_be_looked_at_is_not_missed(manager: Observation) -> None:
    kubelet = seen("services", KUBELET, {"service.running": True})
    switches = seen("pci", NODE, {"nvswitch.pci_count": 4})
    look = machine(kubelet, switches, manager)
    assert (
        unread(look, *service_derivations({}, expecting(fabric_manager=True)))[NODE]["fabric_manager.running"]
        == "refused"
    )
    assert look.derived.get(NODE, {}).get("fabric_manager.running") is None
