from __future__ import annotations

import pytest

from nodeguard.derive.fault_ends import FAULT_ENDS, SOAK, end_faults, pending_faults
from nodeguard.derive.presence import DERIVATIONS
from nodeguard.model.check import EventOccurred
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE
from tests.derive.readings import GPUS, derived, machine, observe, tables

FAULT = 1000.0
PCI: dict[str, Scalar] = {"pci.present": True, "pci.driver": "nvidia", "pci.virtual": False}
WORKS: dict[str, Scalar] = {"gpu.answers": True, "gpu.error": "none", "gpu.recovery_action": 0}
READY: dict[str, Scalar] = {"nvml.ready": True, "gpu.handles_refused": 0, "gpu.handles_hidden": 0}


def node(*gpus: dict[str, Scalar] | None, pci: bool = True, **signals: Scalar) -> list[Observation]:
    """GPUs on the bus, with what NVML reads of each; None for one that NVML lacks."""
    of_node = READY | {name.replace("__", "."): value for name, value in signals.items()}
    return [
        observe("nvml", NODE, of_node),
        *(observe("nvml", GPUS[index], read) for index, read in enumerate(gpus) if read is not None),
        *(observe("pci", GPUS[index], PCI) for index in range(len(gpus)) if pci),
    ]


def ends(
    fault: str, target: str, *observations: Observation, at: float = FAULT + SOAK, source: str = "nvml"
) -> list[str]:
    """Return the events that end a fault at a later reading."""
    latest = machine(*observations, at=at)
    derived(latest, *DERIVATIONS)
    ended = end_faults([(target, fault, FAULT)], latest, [Reading(source, at, ())])
    return [event.signal for events in ended.values() for event in events]


@pytest.mark.parametrize("fault", ["gpu.boot_failed", "gpu.init_failed"])
def test_a_failed_start_is_over_when_nvml_reads_all_gpus(fault: str) -> None:
    assert ends(fault, NODE, *node(WORKS, WORKS)) == ["gpu.started"]


@pytest.mark.parametrize(
    "observations",
    [
        node(WORKS, None),
        node(WORKS, WORKS | {"gpu.error": "UNKNOWN"}),
        node(WORKS, WORKS | {"gpu.answers": False}),
        node(WORKS, {}),
        node(WORKS, WORKS, pci=False),
        node(WORKS, WORKS, nvml__ready=False),
        [*node(WORKS), Observation("nvml", GPUS[1], "hung", detail="no answer")],
        [*node(WORKS), observe("pci", GPUS[1], PCI | {"pci.driver": ""})],
        node(),
    ],
)
def test_a_failed_start_lasts_while_one_gpu_is_not_read(observations: list[Observation]) -> None:
    assert ends("gpu.boot_failed", NODE, *observations) == []


def test_a_failed_start_lasts_while_the_node_has_fewer_gpus_than_before() -> None:
    latest = machine(*node(WORKS, WORKS), at=FAULT + SOAK)
    latest.add(NODE, "gpu.count~inventory", 3)
    events = [(NODE, "gpu.boot_failed", FAULT)]
    assert end_faults(events, latest, [Reading("nvml", FAULT + SOAK, ())]) == {}


def test_gpus_of_virtual_machines_do_not_count() -> None:
    other = observe("pci", GPUS[3], PCI | {"pci.driver": "vfio-pci"})
    assert ends("gpu.boot_failed", NODE, *node(WORKS), other) == ["gpu.started"]


def test_a_named_gpu_counts_by_itself() -> None:
    assert ends("gpu.init_failed", GPUS[0], *node(WORKS, None)) == ["gpu.started"]
    assert ends("gpu.init_failed", GPUS[1], *node(WORKS, None)) == []


def test_a_reading_soon_after_the_fault_or_of_another_source_proves_nothing() -> None:
    assert ends("gpu.boot_failed", NODE, *node(WORKS), at=FAULT + SOAK - 1) == []
    assert ends("gpu.boot_failed", NODE, *node(WORKS), source="pci") == []


@pytest.mark.parametrize("fault", ["gpu.reset_marked", "gpu.firmware_failed"])
def test_a_reset_is_done_when_the_driver_asks_for_no_recovery_of_any_gpu(fault: str) -> None:
    asks_for_reset = WORKS | {"gpu.recovery_action": 1}
    does_not_report = {name: value for name, value in WORKS.items() if name != "gpu.recovery_action"}
    assert ends(fault, NODE, *node(WORKS, WORKS)) == ["gpu.reset_done"]
    assert ends(fault, NODE, *node(WORKS, asks_for_reset)) == []
    assert ends(fault, NODE, *node(WORKS, does_not_report)) == []


BESIDE_MARK = ["gpu.reset_required", "gpu.memory_path_failed"]


@pytest.mark.parametrize("fault", BESIDE_MARK)
def test_no_recovery_action_proves_nothing_of_a_fault_that_marks_no_gpu(fault: str) -> None:
    assert pending_faults([(NODE, fault, FAULT)]) == {}
    marked_before = [(NODE, "gpu.reset_marked", FAULT - 900), (NODE, "gpu.reset_done", FAULT - 500)]
    assert pending_faults([*marked_before, (NODE, fault, FAULT)]) == {}


@pytest.mark.parametrize("fault", BESIDE_MARK)
def test_such_a_fault_beside_a_mark_is_over_soon_after_its_own_latest_line(fault: str) -> None:
    events = [(NODE, "gpu.reset_marked", FAULT), (NODE, fault, FAULT + 200)]
    for in_any_order in (events, events[::-1]):
        assert pending_faults(in_any_order) == {"gpu.reset_done": {NODE: FAULT + 200}}


def test_degraded_nvlinks_are_over_when_each_gpu_has_its_links() -> None:
    linked = WORKS | {"gpu.nvlink.active": 18}
    assert ends("nvlink.degraded", NODE, *node(linked, linked)) == ["nvlink.all_active"]
    assert ends("nvlink.degraded", NODE, *node(linked, WORKS | {"gpu.nvlink.active": 0})) == []
    down = observe("nvml", f"{GPUS[0]}/nvlink/3", {"nvlink.active": False, "nvlink.down": True})
    assert ends("nvlink.degraded", NODE, *node(linked), down) == []


def test_a_confidential_session_is_back_when_the_gpus_are_ready() -> None:
    fault = "gpu.confidential_failed"
    assert ends(fault, NODE, *node(WORKS, nvml__confidential_ready=True)) == ["gpu.confidential_ready"]
    assert ends(fault, NODE, *node(WORKS, nvml__confidential_ready=False)) == []
    assert ends(fault, NODE, *node(WORKS)) == []


def test_a_later_fault_starts_the_time_again() -> None:
    events = [(NODE, "gpu.boot_failed", FAULT + 200), (NODE, "gpu.boot_failed", FAULT)]
    assert pending_faults(events) == {"gpu.started": {NODE: FAULT + 200}}
    assert pending_faults([]) == {}


def test_a_fault_that_ended_is_pending_only_after_a_later_line() -> None:
    events = [(NODE, "gpu.boot_failed", FAULT), (NODE, "gpu.started", FAULT + SOAK)]
    assert pending_faults(events) == {}
    later = (NODE, "gpu.boot_failed", FAULT + 2 * SOAK)
    assert pending_faults([*events, later]) == {"gpu.started": {NODE: FAULT + 2 * SOAK}}


def test_each_end_is_that_of_the_checks_of_its_faults() -> None:
    """Faults and ends of this module, and `until` of the checks, agree."""
    conditions = [
        leaf
        for check in tables().checks
        for leaf in check.leaves()
        if isinstance(leaf, EventOccurred) and leaf.until
    ]
    by_end = {end.event: end.faults | end.ended_too for end in FAULT_ENDS}
    used: dict[str, set[str]] = {end: set() for end in by_end}
    for leaf in conditions:
        if leaf.until in used:
            used[leaf.until].add(leaf.event)
    assert used == by_end
