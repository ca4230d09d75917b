from __future__ import annotations

import pytest

from nodeguard.derive import repeated_traps as module
from nodeguard.derive.repeated_traps import Trap, record_traps, trap_derivation
from nodeguard.model.observation import Component, Observation, Reading
from nodeguard.model.signal import Scalar
from tests.derive.readings import GPUS, derived, machine, xid

GPU = GPUS[0]
DAY = 86_400.0


def trap(process: int | str, place: str = "GPC 3, TPC 1", *, at: float = 100.0, code: int = 13) -> Reading:
    rest = f"pid={process}, name=python3, Graphics SM Warp Exception on ({place}, SM 0): Out Of Range Address"
    return Reading("kmsg", at, (Observation("kmsg", GPU, events=(xid(code, rest, at=at),)),))


def trap_signals(
    *readings: Reading, at: float = 100.0, part: str = "GPU-1", now: str = ""
) -> dict[str, Scalar]:
    """Return the derived signals after some readings. part: the component during them; now: the later one."""

    def gpu_observation(part: str) -> Observation:
        return Observation("nvml", GPU, signals={"gpu.answers": True}, component=Component(part))

    before = record_traps(machine(gpu_observation(part), at=at), {}, readings)
    return derived(machine(gpu_observation(now or part), at=at), trap_derivation(before)).get(GPU, {})


def test_processes_that_fail_in_one_place_are_counted_once_each() -> None:
    lines = [trap(process) for process in (1, 2, 2, 2, 3)]
    assert trap_signals(*lines) == {"gpu.trap.processes": 3, "gpu.trap.place": "GPC 3, TPC 1"}


@pytest.mark.parametrize("last", [trap(3, "GPC 3, TPC 2"), trap(2, "GPC 0, TPC 1")])
def test_failures_in_several_places_are_attributed_to_the_application(last: Reading) -> None:
    assert trap_signals(trap(1), trap(2), last) == {"gpu.trap.processes": 0, "gpu.trap.place": "several"}


@pytest.mark.parametrize(
    "line",
    [
        trap(1, code=31),
        trap("<unknown>"),
        Reading("kmsg", 1.0, (Observation("kmsg", GPU, events=(xid(13),)),)),
    ],
)
def test_trap_without_a_process_or_location_is_ignored(line: Reading) -> None:
    assert trap_signals(line) == {}


def test_entries_older_than_a_day_are_removed() -> None:
    assert trap_signals(trap(1), trap(2, at=200.0), at=DAY + 150.0)["gpu.trap.processes"] == 1


def test_new_component_starts_from_zero() -> None:
    assert trap_signals(trap(1), trap(2), now="GPU-9") == {}


def test_gpu_that_only_the_log_names_has_no_signal() -> None:
    before = record_traps(machine(), {}, [trap(1)])
    assert derived(machine(), trap_derivation(before)) == {}


def test_number_of_remembered_entries_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PROCESSES", 2)
    monkeypatch.setattr(module, "_MAX_GPUS", 1)
    [(_, remaining)] = record_traps(
        machine(), {"gpu/x": (Trap(1, "", "p", 1.0),)}, [trap(at) for at in range(5)]
    ).items()
    assert [item.process for item in remaining] == [3, 4]
