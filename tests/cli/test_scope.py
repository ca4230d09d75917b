from __future__ import annotations

import pytest

from nodeguard.cli.scope import reason_not_evaluated, required_sources
from nodeguard.model.check import Compare, Condition, EventOccurred, Reference
from tests.judge.judged_node import check

SOURCES = {
    "nvml": frozenset({"gpu.count", "gpu.name"}),
    "filesystem": frozenset({"fs.used"}),
    "kmsg": frozenset({"fs.shut_down", "gpu.fell_off"}),
    "clock": frozenset({"clock.state"}),
}


@pytest.mark.parametrize(
    ("when", "sources"),
    [
        (Compare("gpu.name", "is", "x"), {"nvml"}),
        (EventOccurred("fs.shut_down"), {"kmsg"}),
        (Compare("fs.disk", "is", "derived of its own"), {"filesystem", "kmsg"}),
        (Compare("gpu.lost", "is", "derived of anything"), set(SOURCES)),
        (Compare("gpu.name", "is", than=Reference("peers", "gpu.name")), {"nvml"}),
        (Compare("gpu.name", "is", than=Reference("platform", "gpu_name")), set(SOURCES)),
    ],
)
def test_a_check_requires_the_sources_of_its_signals(when: Condition, sources: set[str]) -> None:
    assert required_sources([check(when)], SOURCES) == sources


def test_the_sources_of_applies_when_are_required_too() -> None:
    item = check(Compare("gpu.name", "is", "x"), applies_when=Compare("clock.state", "is", 1))
    assert required_sources([item], SOURCES) == {"nvml", "clock"}


def test_the_reason_names_the_hardware_that_is_missing() -> None:
    on_node = check(Compare("a", "is", 1))
    on_ports = check(Compare("a", "is", 1), targets=("port", "gpu"))
    assert reason_not_evaluated(["b", "a"], [on_node]) == "a, b do not apply"
    assert (
        reason_not_evaluated(["a"], [on_ports]) == "a does not apply, this machine has no GPUs and no ports"
    )
