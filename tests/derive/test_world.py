from __future__ import annotations

import pytest

from nodeguard.derive.world import world
from nodeguard.model.observation import Event, Observation, Reading, Status
from tests.derive.look import GPUS, machine, seen


def test_signals_of_all_sources_stand_together() -> None:
    look = machine(
        seen("nvml", GPUS[0], {"a": 1}), seen("pci", GPUS[0], {"b": 2}), seen("host", "node", {"c": 3})
    )
    assert (look.of(GPUS[0]), look.node("c")) == ({"a": 1, "b": 2}, 3)
    assert look.of_source["pci"] == {GPUS[0]}


def test_who_tells_but_of_an_event_has_not_reached_the_slot() -> None:
    """NVML tells of the Xid by which it loses a GPU."""
    event = Observation("nvml", GPUS[0], events=(Event("gpu.xid.line", 99.0, "", {"xid": 79}),))
    for one in (event, Observation("nvml", GPUS[0])):
        assert machine(one, seen("nvml", GPUS[1], {"a": 1})).of_source["nvml"] == {GPUS[1]}
    refused = Observation("nvml", GPUS[0], "failed")
    assert machine(refused).of_source["nvml"] == {GPUS[0]}


def test_what_is_not_known_is_empty() -> None:
    look = machine()
    assert (look.of("node"), look.node("x"), look.slots("gpu")) == ({}, None, ())


def test_slots_of_a_kind_come_in_order_and_once() -> None:
    look = machine(*(seen(source, gpu, {"a": 1}) for source in ("nvml", "pci") for gpu in reversed(GPUS)))
    assert look.slots("gpu") == tuple(GPUS)


@pytest.mark.parametrize(
    ("status", "failed"), [("read", False), ("absent", False), ("failed", True), ("hung", True)]
)
def test_a_source_that_failed_as_a_whole_is_known(status: Status, failed: bool) -> None:
    look = world([Reading("nvml", 1, (Observation("nvml", "node", status),))], 1)
    assert ("nvml" in look.failed) is failed


def test_a_source_that_did_not_come_to_its_end_failed() -> None:
    assert list(machine(cut=("nvml",)).failed) == ["nvml"]


def test_one_slot_that_cannot_be_read_fails_no_source() -> None:
    look = world([Reading("nvml", 1, (Observation("nvml", GPUS[0], "failed", detail="refused"),))], 1)
    assert (look.failed, look.refused) == ({}, {GPUS[0]: "refused"})
