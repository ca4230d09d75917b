from __future__ import annotations

import pytest

from nodeguard.derive.latest_readings import LatestReadings, UnreadError, retain_reading
from nodeguard.model.observation import DETACHED, Event, Observation, Reading, Status
from nodeguard.model.target import NODE
from tests.derive.look import GPUS, machine, readings, seen

GPU = GPUS[0]
LINK = f"{GPU}/nvlink/3"


def reason(look: LatestReadings, slot: str, signal: str) -> str:
    with pytest.raises(UnreadError) as error:
        look.get(slot, signal)
    return error.value.reason


def test_signals_of_all_sources_are_merged() -> None:
    look = machine(
        seen("nvml", GPU, {"gpu.error": "none"}),
        seen("pci", GPU, {"pci.present": True}),
        seen("host", NODE, {"host.uptime": 3.0}),
    )
    assert (look.get(GPU, "gpu.error"), look.get(GPU, "pci.present"), look.node_signal("host.uptime")) == (
        "none",
        True,
        3,
    )
    assert look.listed("pci", "gpu") == frozenset({GPU})


def test_signal_that_is_not_applicable_is_none() -> None:
    look = machine(seen("nvml", GPU, {"gpu.error": "none"}))
    assert look.get(GPU, "gpu.fabric.state") is None
    assert look.get(GPU, "pci.driver") is None, "the bus is read on no such machine"


def test_a_signal_that_was_refused_raises() -> None:
    look = machine(
        Observation("pci", GPU, signals={"pci.present": True}, unreadable={"pci.driver": "refused"})
    )
    assert reason(look, GPU, "pci.driver") == "refused"
    assert look.get(GPU, "pci.present") is True


def test_a_signal_that_one_source_read_is_not_unread_for_another_that_could_not() -> None:
    refused = Observation("nvml", GPU, unreadable={"gpu.error": "refused"})
    assert machine(refused, seen("pci", GPU, {"gpu.error": "none"})).get(GPU, "gpu.error") == "none"


@pytest.mark.parametrize("status", ["failed", "hung", "detached"])
def test_unread_target_has_no_signals(status: Status) -> None:
    look = machine(
        seen("pci", GPU, {"pci.present": True}), Observation("nvml", GPU, status, detail="no answer")
    )
    assert reason(look, GPU, "gpu.fabric.state") == "no answer"
    assert look.get(GPU, "pci.present") is True
    assert look.unreadable_reason("nvml", GPU) == "no answer"


def test_target_missing_from_an_incomplete_list_is_unknown() -> None:
    other = seen("pci", GPUS[1], {"pci.present": True})
    dark = Observation("pci", NODE, unlisted={"gpu": "the bus cannot be listed"})
    look = machine(other, dark, seen("nvml", GPU, {"gpu.error": "none"}))
    assert reason(look, GPU, "pci.driver") == "the bus cannot be listed"
    with pytest.raises(UnreadError):
        look.listed("pci", "gpu")
    assert look.listed("pci", "nvswitch") == frozenset()
    assert look.listed("nvml", "gpu") == frozenset({GPU})


def test_a_round_that_was_cut_short_lists_nothing_completely() -> None:
    look = machine(seen("nvml", GPU, {"gpu.error": "none"}), cut=("nvml",))
    with pytest.raises(UnreadError, match="did not finish"):
        look.listed("nvml", "gpu")
    assert machine(cut=("nvml",)).listed("pci", "gpu") is None, "a source that was never read lists nothing"


def test_event_without_signals_adds_no_target() -> None:
    """NVML reports the Xid by which it loses a GPU."""
    event = Observation("nvml", GPU, events=(Event("gpu.xid.line", 99.0, "", {"xid": 79}),))
    assert machine(event, seen("nvml", GPUS[1], {"gpu.error": "none"})).listed("nvml", "gpu") == frozenset(
        {GPUS[1]}
    )
    refused = Observation("nvml", GPU, "failed")
    assert machine(refused).listed("nvml", "gpu") == frozenset({GPU})


def test_targets_are_sorted_and_unique() -> None:
    rows = (seen(source, gpu, {"x": 1}) for source in ("nvml", "pci") for gpu in reversed(GPUS))
    assert list(machine(*rows).targets("gpu")) == GPUS


def test_derived_signal_and_its_failure_are_readable() -> None:
    look = machine(seen("nvml", GPU, {"gpu.error": "none"}))
    look.add(GPU, "gpu.busy", True)
    look.add_unread(GPU, "gpu.lost", "refused")
    assert look.get(GPU, "gpu.busy") is True
    assert reason(look, GPU, "gpu.lost") == "refused"
    assert dict(look.values())[GPU] == {"gpu.error": "none", "gpu.busy": True}
    assert look.read_signals(GPU) == {"gpu.error": "none"}


@pytest.mark.parametrize(
    ("dark", "whole"),
    [
        ((), True),
        ((Observation("nvml", NODE, unlisted={"gpu": "refused"}),), False),
        ((Observation("nvml", NODE, unlisted={"port": "refused"}),), True),
        ((Observation("pci", GPU, "failed"),), False),
        ((Observation("kmsg", NODE, "failed"),), True),
    ],
)
def test_target_is_complete_if_every_source_that_lists_it_read_it(
    dark: tuple[Observation, ...], whole: bool
) -> None:
    look = machine(seen("nvml", GPU, {"gpu.error": "none"}), *dark)
    assert look.is_fully_read(GPU) is whole
    assert look.is_fully_read(NODE)


ROUND = readings(seen("nvml", GPU, {"gpu.error": "none"}), seen("nvml", LINK, {"nvlink.active": True}))[0]


def test_complete_round_replaces_the_remembered_targets() -> None:
    now = readings(seen("nvml", GPU, {"gpu.error": "none"}))[0]
    assert retain_reading(ROUND, now) is now


def test_slots_that_a_round_should_have_named_are_remembered_as_unread() -> None:
    failed = Observation("nvml", NODE, "failed", detail="no driver")
    remaining = retain_reading(ROUND, Reading("nvml", 110, (failed,), complete=False))
    assert {seen.target: (seen.status, seen.detail) for seen in remaining.observations} == {
        NODE: ("failed", "no driver"),
        GPU: ("failed", "no driver"),
        LINK: ("failed", "no driver"),
    }
    assert (
        retain_reading(remaining, Reading("nvml", 120, (failed,), complete=False)).observations
        == remaining.observations
    )
    partial = Observation("nvml", NODE, unlisted={"gpu": "a GPU without a name"})
    assert [seen.target for seen in retain_reading(ROUND, Reading("nvml", 110, (partial,))).observations] == [
        NODE,
        GPU,
    ]


def test_events_are_not_remembered() -> None:
    messages = Observation("kmsg", GPU, events=(Event("gpu.fell_off", 5.0),))
    assert retain_reading(None, Reading("kmsg", 10, (messages,))).observations[0].events == ()


def test_detached_target_has_the_detachment_as_reason() -> None:
    look = machine(Observation("nvml", GPU, "detached", detail=DETACHED))
    assert reason(look, GPU, "gpu.error") == DETACHED
