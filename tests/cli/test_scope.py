from __future__ import annotations

import pytest

from nodeguard.cli.scope import reason_not_evaluated, required_sources
from nodeguard.model.check import Compare, Condition, EventOccurred, Reference
from tests.judge.scene import check

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
def test_a_check_looks_at_what_its_signals_come_from(when: Condition, sources: set[str]) -> None:
    assert required_sources([check(when)], SOURCES) == sources


def test_what_a_check_is_for_is_looked_at_too() -> None:
    one = check(Compare("gpu.name", "is", "x"), applies=Compare("clock.state", "is", 1))
    assert required_sources([one], SOURCES) == {"nvml", "clock"}


def test_why_nothing_was_judged_names_what_is_not_there() -> None:
    on_node = check(Compare("a", "is", 1))
    on_ports = check(Compare("a", "is", 1), targets=("port", "gpu"))
    assert reason_not_evaluated(["b", "a"], [on_node]) == "a, b do not apply"
    assert (
        reason_not_evaluated(["a"], [on_ports])
        == "a does not apply, as this machine has no GPUs and no ports to judge"
    )
