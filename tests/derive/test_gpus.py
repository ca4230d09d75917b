from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodeguard.derive.gpus import gpus, links
from nodeguard.model.signal import Scalar
from tests.derive.look import GPUS, expecting, machine, seen

READY: dict[str, Scalar] = {"gpu.fabric.state": 3, "gpu.fabric.status": 0}


def derived(signals: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return dict(gpus(machine(seen("nvml", GPUS[0], signals)))).get(GPUS[0], {})


@pytest.mark.parametrize(
    ("idle", "used", "busy"),
    [(False, 97, True), (True, 97, False), (False, 0, False), (None, 97, None), (False, None, None)],
)
def test_a_gpu_is_busy_where_it_is_used_and_does_not_call_itself_idle(
    idle: bool | None, used: int | None, busy: bool | None
) -> None:
    signals = {
        name: value
        for name, value in (("gpu.clocks.idle", idle), ("gpu.utilization", used))
        if value is not None
    }
    assert derived(signals).get("gpu.busy") is busy


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
def test_a_gpu_that_has_a_fabric_has_joined_it_or_not(signals: dict[str, Scalar], ready: bool | None) -> None:
    assert derived(signals).get("gpu.fabric.ready") is ready


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
def test_what_the_fabric_says_is_wrong(mask: int | None, summary: int | None, problem: str) -> None:
    known = {"gpu.fabric.health_mask": mask, "gpu.fabric.health_summary": summary}
    assert (
        derived({**READY, **{name: value for name, value in known.items() if value is not None}})[
            "gpu.fabric.problem"
        ]
        == problem
    )


@pytest.mark.parametrize(("used", "margin"), [(90, 7), (0, None)])
def test_only_gpus_at_work_are_a_measure_of_heat(used: int, margin: int | None) -> None:
    signals: dict[str, Scalar] = {"gpu.clocks.idle": used == 0, "gpu.utilization": used}
    found = derived({**signals, "gpu.temperature.limit_distance": 7})
    assert (found["gpu.temperature.margin"], found.get("gpu.temperature.busy_margin")) == (7, margin)


def down(
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
    look = machine(
        seen("nvml", GPUS[0], {**counts, **({"gpu.nvlink.active~peers": peers} if peers else {})}),
        seen("nvml", link, {"nvlink.active": False, "nvlink.sleeping": sleeping}),
    )
    result = dict(links(look, expecting(nvlink_links=platform) if platform else None, {GPUS[0]: before}))
    return bool(result.get(link, {}).get("nvlink.down"))


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
def test_a_link_is_down_where_its_gpu_should_have_more(words: dict[str, Any], is_down: bool) -> None:
    assert down(**words) is is_down


def test_nothing_is_said_of_links_that_are_active() -> None:
    look = machine(
        seen("nvml", GPUS[0], {"gpu.nvlink.active": 18}),
        seen("nvml", f"{GPUS[0]}/nvlink/0", {"nvlink.active": True}),
    )
    assert dict(links(look, None, {})) == {}
