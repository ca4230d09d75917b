from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.derive.latest_readings import LatestReadings, UnreadError, retain_reading
from nodeguard.model.observation import DETACHED, Event, Observation, Reading, Status
from nodeguard.model.target import NODE
from tests.derive.readings import GPUS, machine, observe, readings

GPU = GPUS[0]
LINK = f"{GPU}/nvlink/3"


def reason(latest: LatestReadings, target: str, signal: str) -> str:
    with pytest.raises(UnreadError) as error:
        latest.get(target, signal)
    return error.value.reason


def test_signals_of_all_sources_are_merged() -> None:
    latest = machine(
        observe("nvml", GPU, {"gpu.error": "none"}),
        observe("pci", GPU, {"pci.present": True}),
        observe("host", NODE, {"host.uptime": 3.0}),
    )
    assert (
        latest.get(GPU, "gpu.error"),
        latest.get(GPU, "pci.present"),
        latest.node_signal("host.uptime"),
    ) == ("none", True, 3)
    assert latest.listed("pci", "gpu") == frozenset({GPU})


def test_signal_that_is_not_applicable_is_none() -> None:
    latest = machine(observe("nvml", GPU, {"gpu.error": "none"}))
    assert latest.get(GPU, "gpu.fabric.state") is None
    assert latest.get(GPU, "pci.driver") is None, "the bus is read on no such machine"


def test_get_raises_for_a_refused_signal() -> None:
    latest = machine(
        Observation("pci", GPU, signals={"pci.present": True}, unreadable={"pci.driver": "refused"})
    )
    assert reason(latest, GPU, "pci.driver") == "refused"
    assert latest.get(GPU, "pci.present") is True


def test_signal_read_by_one_source_is_not_unread_if_another_source_refuses_it() -> None:
    refused = Observation("nvml", GPU, unreadable={"gpu.error": "refused"})
    assert machine(refused, observe("pci", GPU, {"gpu.error": "none"})).get(GPU, "gpu.error") == "none"


@pytest.mark.parametrize("status", ["failed", "hung", "detached"])
def test_unread_target_has_no_signals(status: Status) -> None:
    latest = machine(
        observe("pci", GPU, {"pci.present": True}), Observation("nvml", GPU, status, detail="no answer")
    )
    assert reason(latest, GPU, "gpu.fabric.state") == "no answer"
    assert latest.get(GPU, "pci.present") is True
    assert latest.unreadable_reason("nvml", GPU) == "no answer"


def test_target_missing_from_an_incomplete_list_is_unknown() -> None:
    other = observe("pci", GPUS[1], {"pci.present": True})
    dark = Observation("pci", NODE, unlisted={"gpu": "the bus cannot be listed"})
    latest = machine(other, dark, observe("nvml", GPU, {"gpu.error": "none"}))
    assert reason(latest, GPU, "pci.driver") == "the bus cannot be listed"
    with pytest.raises(UnreadError):
        latest.listed("pci", "gpu")
    assert latest.listed("pci", "nvswitch") == frozenset()
    assert latest.listed("nvml", "gpu") == frozenset({GPU})


def test_interrupted_round_has_no_complete_list_of_targets() -> None:
    latest = machine(observe("nvml", GPU, {"gpu.error": "none"}), cut=("nvml",))
    with pytest.raises(UnreadError, match="did not finish"):
        latest.listed("nvml", "gpu")
    assert machine(cut=("nvml",)).listed("pci", "gpu") is None, "a source that was never read lists nothing"


def test_event_without_signals_adds_no_target() -> None:
    """NVML reports the Xid by which it loses a GPU."""
    event = Observation("nvml", GPU, events=(Event("gpu.xid.line", 99.0, "", {"xid": 79}),))
    assert machine(event, observe("nvml", GPUS[1], {"gpu.error": "none"})).listed("nvml", "gpu") == frozenset(
        {GPUS[1]}
    )
    refused = Observation("nvml", GPU, "failed")
    assert machine(refused).listed("nvml", "gpu") == frozenset({GPU})


def test_targets_are_sorted_and_unique() -> None:
    rows = (observe(source, gpu, {"x": 1}) for source in ("nvml", "pci") for gpu in reversed(GPUS))
    assert list(machine(*rows).targets("gpu")) == GPUS


def test_derived_signal_and_its_failure_are_readable() -> None:
    latest = machine(observe("nvml", GPU, {"gpu.error": "none"}))
    latest.add(GPU, "gpu.busy", True)
    latest.add_unread(GPU, "gpu.lost", "refused")
    assert latest.get(GPU, "gpu.busy") is True
    assert reason(latest, GPU, "gpu.lost") == "refused"
    assert dict(latest.values())[GPU] == {"gpu.error": "none", "gpu.busy": True}
    assert latest.read_signals(GPU) == {"gpu.error": "none"}


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
    latest = machine(observe("nvml", GPU, {"gpu.error": "none"}), *dark)
    assert latest.is_fully_read(GPU) is whole
    assert latest.is_fully_read(NODE)


ROUND = readings(observe("nvml", GPU, {"gpu.error": "none"}), observe("nvml", LINK, {"nvlink.active": True}))[
    0
]


def test_complete_round_replaces_the_remembered_targets() -> None:
    now = readings(observe("nvml", GPU, {"gpu.error": "none"}))[0]
    assert retain_reading(ROUND, now) is now


def test_targets_missing_from_an_incomplete_round_are_retained_as_unread() -> None:
    failed = Observation("nvml", NODE, "failed", detail="no driver")
    remaining = retain_reading(ROUND, Reading("nvml", 110, (failed,), complete=False))
    assert {
        observation.target: (observation.status, observation.detail) for observation in remaining.observations
    } == {NODE: ("failed", "no driver"), GPU: ("failed", "no driver"), LINK: ("failed", "no driver")}
    assert (
        retain_reading(remaining, Reading("nvml", 120, (failed,), complete=False)).observations
        == remaining.observations
    )
    partial = Observation("nvml", NODE, unlisted={"gpu": "a GPU without a name"})
    assert [
        observation.target
        for observation in retain_reading(ROUND, Reading("nvml", 110, (partial,))).observations
    ] == [NODE, GPU]


def test_events_are_not_remembered() -> None:
    messages = Observation("kmsg", GPU, events=(Event("gpu.fell_off", 5.0),))
    position = Observation("kmsg", NODE, signals={"kmsg.sequence": 7})
    assert retain_reading(None, Reading("kmsg", 10, (position, messages))).observations == ()
    read = Observation("nvml", GPU, signals={"gpu.temperature": 40})
    assert retain_reading(
        None, Reading("nvml", 10, (replace(read, events=messages.events),))
    ).observations == (read,)


def test_detached_target_has_the_detachment_as_reason() -> None:
    latest = machine(Observation("nvml", GPU, "detached", detail=DETACHED))
    assert reason(latest, GPU, "gpu.error") == DETACHED
