from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodeguard.derive.gpus import THERMAL_DERIVATIONS, gpu_derivations, nvlink_derivation
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from tests.derive.readings import GPUS, derived, expecting, machine, observe, unread

READY: dict[str, Scalar] = {"gpu.fabric.state": 3, "gpu.fabric.status": 0}


def gpu_signals(signals: Mapping[str, Scalar]) -> dict[str, Scalar]:
    latest = machine(observe("nvml", GPUS[0], signals))
    return derived(latest, *gpu_derivations(None, {GPUS[0]: 18}), *THERMAL_DERIVATIONS).get(GPUS[0], {})


@pytest.mark.parametrize(
    ("idle", "used", "busy"),
    [(False, 97, True), (True, 97, False), (False, 0, False), (None, 97, None), (False, None, None)],
)
def test_gpu_is_busy_if_it_is_used_and_its_clocks_are_not_idle(
    idle: bool | None, used: int | None, busy: bool | None
) -> None:
    signals = {
        name: value
        for name, value in (("gpu.clocks.idle", idle), ("gpu.utilization", used))
        if value is not None
    }
    assert gpu_signals(signals).get("gpu.busy") is busy


@pytest.mark.parametrize(
    ("now", "most", "share"),
    [(345, 1380, 0.25), (1980, 1980, 1.0), (0, 1980, None), (1980, 0, None), (9, 1, None)],
)
def test_clock_is_a_share_of_the_highest(now: int, most: int, share: float | None) -> None:
    signals: dict[str, Scalar] = {"gpu.clocks.sm": now, "gpu.clocks.sm_max": most}
    assert gpu_signals(signals).get("gpu.clocks.share") == share


@pytest.mark.parametrize(
    ("signals", "ready"),
    [
        (READY, True),
        ({"gpu.fabric.state": 3}, True),
        ({**READY, "gpu.fabric.status": 999}, False),
        ({**READY, "gpu.fabric.state": 2}, False),
        ({**READY, "gpu.fabric.state": 0}, None),
        ({}, None),
    ],
)
def test_fabric_ready_follows_fabric_state_and_status(signals: dict[str, Scalar], ready: bool | None) -> None:
    assert gpu_signals(signals).get("gpu.fabric.ready") is ready


@pytest.mark.parametrize(
    ("mask", "summary", "problem"),
    [
        (0b10_10_10_10, 1, "none"),
        (0b10_10_10_01, 1, "degraded bandwidth"),
        (0b10_01_10_10, 1, "route unhealthy"),
        (
            5 << 8 | 0b10_10_01_10,
            1,
            "route recovery in progress, incorrect configuration: insufficient NVLinks",
        ),
        (1 << 8, 2, "unhealthy"),
        (0, 3, "limited capacity"),
        (None, None, "none"),
    ],
)
def test_fabric_problems_are_listed(mask: int | None, summary: int | None, problem: str) -> None:
    before = {"gpu.fabric.health_mask": mask, "gpu.fabric.health_summary": summary}
    assert (
        gpu_signals({**READY, **{name: value for name, value in before.items() if value is not None}})[
            "gpu.fabric.problem"
        ]
        == problem
    )


@pytest.mark.parametrize(("used", "margin"), [(90, 7), (0, None)])
def test_only_busy_gpus_are_temperature_peers(used: int, margin: int | None) -> None:
    signals: dict[str, Scalar] = {"gpu.clocks.idle": used == 0, "gpu.utilization": used}
    result = gpu_signals({**signals, "gpu.temperature.limit_distance": 7})
    assert (result["gpu.temperature.margin"], result.get("gpu.temperature.busy_margin")) == (7, margin)


def is_link_down(
    active: int,
    *,
    mig: bool = False,
    platform: int = 0,
    peers: int = 0,
    before: int = 0,
    sleeping: bool = False,
) -> bool:
    """Whether an inactive link of a GPU with so many active ones is down."""
    link = f"{GPUS[0]}/nvlink/7"
    counts: dict[str, Scalar] = {"gpu.nvlink.active": active, "gpu.mig.enabled": mig}
    latest = machine(
        observe("nvml", GPUS[0], {**counts, **({"gpu.nvlink.active~peers": peers} if peers else {})}),
        observe("nvml", link, {"nvlink.active": False, "nvlink.sleeping": sleeping}),
    )
    expected = nvlink_derivation(expecting(nvlink_links=platform) if platform else None, {GPUS[0]: before})
    return bool(derived(latest, expected).get(link, {}).get("nvlink.down"))


@pytest.mark.parametrize(
    ("words", "is_down"),
    [
        ({"active": 12}, False),
        ({"active": 0}, False),
        ({"active": 17, "platform": 18}, True),
        ({"active": 17, "platform": 18, "mig": True}, False),
        ({"active": 4, "platform": 18}, True),
        ({"active": 12, "platform": 12}, False),
        ({"active": 6, "peers": 8}, True),
        ({"active": 6, "before": 8}, True),
        ({"active": 6, "before": 6}, False),
        ({"active": 17, "platform": 18, "sleeping": True}, False),
    ],
)
def test_inactive_link_is_down_if_its_gpu_has_fewer_active_links_than_expected(
    words: dict[str, Any], is_down: bool
) -> None:
    assert is_link_down(**words) is is_down


def test_gpu_without_mig_mode_beside_a_gpu_in_mig_mode_has_no_link_that_is_down() -> None:
    link = f"{GPUS[0]}/nvlink/7"
    for other, is_down in ((True, None), (False, True)):
        latest = machine(
            observe("nvml", GPUS[0], {"gpu.nvlink.active": 0}),
            observe("nvml", GPUS[1], {"gpu.mig.enabled": other}),
            observe("nvml", link, {"nvlink.active": False, "nvlink.sleeping": False}),
        )
        assert (
            derived(latest, nvlink_derivation(None, {GPUS[0]: 12})).get(link, {}).get("nvlink.down")
            is is_down
        )


def test_pcie_card_that_never_had_an_active_link_has_no_link_that_is_down() -> None:
    """Others of the node may have one; a module (SXM) is always wired."""
    link = f"{GPUS[0]}/nvlink/7"
    for name, before, is_down in (
        ("NVIDIA H100 PCIe", 0, False),
        ("NVIDIA H100 PCIe", 12, True),
        ("NVIDIA A100-SXM4-80GB", 0, True),
    ):
        signals: dict[str, Scalar] = {"gpu.nvlink.active": 0, "gpu.nvlink.active~peers": 12, "gpu.name": name}
        latest = machine(
            observe("nvml", GPUS[0], signals), observe("nvml", link, {"nvlink.active": False}), empty=("pci",)
        )
        assert derived(latest, nvlink_derivation(None, {GPUS[0]: before}))[link]["nvlink.down"] is is_down


def test_link_is_unknown_when_some_links_are_unread() -> None:
    link = f"{GPUS[0]}/nvlink/7"
    latest = machine(
        Observation("nvml", GPUS[0], signals={"gpu.name": "x"}, unreadable={"gpu.nvlink.active": "refused"}),
        observe("nvml", link, {"nvlink.active": False}),
    )
    assert unread(latest, nvlink_derivation(None, {GPUS[0]: 18}))[link]["nvlink.down"] == "refused"


@pytest.mark.parametrize(
    ("rows", "platform", "before", "has_fabric"),
    [
        ((), None, 0, False),
        ((observe("pci", "node", {"nvswitch.pci_count": 4}),), None, 0, True),
        ((observe("nvml", GPUS[1], {"gpu.nvlink.active": 18}),), None, 0, True),
        ((observe("services", "service/nvidia-imex", {"service.enabled": True}),), None, 0, True),
        ((), {"nvlink_links": 18}, 0, True),
        ((), {"gpus": 1}, 0, False),
        ((), None, 18, True),
    ],
)
def test_joining_gpu_is_not_ready_only_on_a_machine_with_a_fabric(
    rows: tuple[Observation, ...], platform: dict[str, Scalar] | None, before: int, has_fabric: bool
) -> None:
    joining: dict[str, Scalar] = {"gpu.fabric.state": 2, "gpu.fabric.status": 0}
    latest = machine(observe("nvml", GPUS[0], joining), *rows)
    result = derived(latest, *gpu_derivations(expecting(**platform) if platform else None, {GPUS[0]: before}))
    assert result[GPUS[0]].get("gpu.fabric.ready") is (False if has_fabric else None)


CLUSTER = "9c6f5af3-53bf-49b5-a436-b66766c413c3"


@pytest.mark.parametrize(
    ("cluster", "clique", "domain"),
    [
        (CLUSTER, 32766, f"{CLUSTER}.32766"),
        (CLUSTER, 0, "unset"),
        ("00000000-0000-0000-0000-000000000000", 32766, "unset"),
    ],
)
def test_domain_of_a_gpu_is_its_cluster_and_clique(cluster: str, clique: int, domain: str) -> None:
    place: dict[str, Scalar] = {"gpu.fabric.cluster": cluster, "gpu.fabric.clique": clique}
    assert gpu_signals({**READY, **place})["gpu.fabric.domain"] == domain
    assert "gpu.fabric.domain" not in gpu_signals({**READY, **place, "gpu.fabric.state": 2})
    assert "gpu.fabric.domain" not in gpu_signals(READY)


@pytest.mark.parametrize(
    ("expect", "of_rack"),
    [
        ({"nvswitches": 0, "nvlink_links": 18}, True),
        ({"nvswitches": 0}, False),
        ({"nvswitches": 4, "nvlink_links": 18}, None),
        ({"nvlink_links": 18}, None),
    ],
)
def test_fabric_of_a_rack_has_its_nvswitches_elsewhere(
    expect: dict[str, Scalar], of_rack: bool | None
) -> None:
    latest = machine(observe("nvml", GPUS[0], {"gpu.name": "NVIDIA GB200"}))
    signals = derived(latest, *gpu_derivations(expecting(**expect), {})).get(GPUS[0], {})
    assert signals.get("gpu.fabric.of_rack") is of_rack


def test_active_links_have_no_derived_signal() -> None:
    latest = machine(
        observe("nvml", GPUS[0], {"gpu.nvlink.active": 18}),
        observe("nvml", f"{GPUS[0]}/nvlink/0", {"nvlink.active": True}),
    )
    assert derived(latest, nvlink_derivation(None, {})) == {}


GPU = "gpu.temperature"
MEMORY = "gpu.memory.temperature"


def margins(signals: dict[str, Scalar]) -> dict[str, Scalar]:
    return derived(machine(observe("nvml", GPUS[0], signals)), *THERMAL_DERIVATIONS).get(GPUS[0], {})


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
def test_temperature_margin_is_equal_for_all_reporting_forms(
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
def test_memory_temperature_margin(signals: dict[str, Scalar], margin: float | None) -> None:
    assert margins(signals).get("gpu.memory.temperature_margin") == margin


def of_tray(*states: int, summaries: tuple[int, ...] = (), silent: int = 0) -> dict[str, Scalar]:
    """Return the derived signals of a tray with GPUs in these states of their fabric.

    silent: further GPUs in NVML's list, without a state of their fabric.
    """
    others = GPUS[len(states) : len(states) + silent]
    gpus = [observe("nvml", gpu, {"gpu.error": "GPU_IS_LOST"}) for gpu in others]
    gpus += [
        observe(
            "nvml",
            gpu,
            {"gpu.fabric.state": state, "gpu.fabric.status": 0, "gpu.fabric.health_summary": summary},
        )
        for gpu, state, summary in zip(GPUS, states, summaries or (1,) * len(states), strict=False)
    ]
    tray = expecting(nvswitches=0, nvlink_links=18)
    return derived(machine(*gpus), *gpu_derivations(tray, {})).get(NODE, {})


@pytest.mark.parametrize(
    ("states", "joined"), [((1, 1, 2), False), ((1, 3, 1), True), ((3, 3), True), ((1,), None), ((), None)]
)
def test_a_tray_has_joined_its_fabric_if_one_gpu_has(states: tuple[int, ...], joined: bool | None) -> None:
    assert of_tray(*states).get("fabric.tray_joined") is joined


@pytest.mark.parametrize(
    ("summaries", "problem"),
    [((2, 2), "unhealthy"), ((2, 3), "unhealthy; limited capacity"), ((2, 1), "none"), ((2,), None)],
)
def test_a_problem_of_all_gpus_is_one_of_each(summaries: tuple[int, ...], problem: str | None) -> None:
    states = (3,) * len(summaries)
    assert of_tray(*states, summaries=summaries).get("fabric.problem_of_all") == problem


def test_some_gpus_are_not_all_gpus_of_the_node() -> None:
    assert "fabric.tray_joined" not in of_tray(1, 1, silent=1)
    assert "fabric.problem_of_all" not in of_tray(3, 3, summaries=(2, 2), silent=1)
