from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.check import EventOccurred
from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar
from nodeguard.sources.event_batch import EventBatch
from nodeguard.sources.kmsg import KmsgSource

GPU = "gpu/0000:3b:00"


def xid(code: int, at: float = 1.0) -> Event:
    return Event("gpu.xid.line", at, f"Xid {code}", {"xid": code})


def counts(batch: EventBatch) -> dict[tuple[str, object], int]:
    """The number of events by target and code."""
    return {
        (observation.target, observation.events[0].fields.get("xid", "")): sum(
            event.count for event in observation.events
        )
        for observation in batch.observations("kmsg")
    }


def test_a_storm_of_one_kind_counts_every_event_and_keeps_the_latest_text() -> None:
    batch = EventBatch()
    for number in range(5000):
        batch.add(GPU, "nv_xid", xid(13, float(number)))
    [observation] = batch.observations("kmsg")
    assert len(observation.events) == 64
    assert sum(event.count for event in observation.events) == 5000
    assert observation.events[-1].at == 4999.0


def test_storm_of_many_kinds_is_bounded_and_counts_every_event() -> None:
    batch = EventBatch()
    for number in range(20_000):
        batch.add(f"gpu/0000:{number % 8:02x}:00", "nv_xid", xid(number // 8 % 50))
    assert sum(len(observation.events) for observation in batch.observations("kmsg")) <= 1024
    assert sum(counts(batch).values()) == 20_000
    assert batch.dropped == 0


@pytest.mark.parametrize(
    ("many", "other"),
    [
        ({"status": "8c00004000010093"}, {"status": "be00000000800400"}),
        ({"severity": "corrected"}, {"severity": "fatal"}),
        ({"constraint": "CONSTRAINT_MEMCG"}, {"constraint": "CONSTRAINT_NONE"}),
        ({"sxid": 20034, "sev": "Non-fatal"}, {"sxid": 20034, "sev": "Fatal"}),
        ({"label": "DIMM_A1"}, {"label": "DIMM_B1"}),
    ],
)
def test_storm_does_not_hide_an_event_with_another_meaning(
    many: dict[str, Scalar], other: dict[str, Scalar]
) -> None:
    batch = EventBatch()
    for at in range(200):
        batch.add("node", "pattern", Event("a.happened", float(at), "text", other if at == 100 else many))
    events = [event for observation in batch.observations("kmsg") for event in observation.events]
    assert [event.at for event in events if event.fields == other] == [100.0]
    assert sum(event.count for event in events) == 200


def test_fields_in_conditions_of_checks_separate_the_event_counts() -> None:
    catalogue = load_catalogue()[0]
    fields_by_pattern = {
        name: {*signal.fields} - {"pci"}  # the address is in the target
        for name, signal in KmsgSource(catalogue.patterns).signals.items()
    }
    leaves = [
        leaf for check in catalogue.checks for leaf in check.leaves() if isinstance(leaf, EventOccurred)
    ]
    for leaf in (leaf for leaf in leaves if leaf.event in fields_by_pattern):
        for name in {*leaf.where} | (
            fields_by_pattern[leaf.event] & fields_by_pattern.get(leaf.until, set())
        ):
            batch = EventBatch()
            for value in ("a", "b"):
                batch.add("node", "pattern", Event(leaf.event, 1.0, "text", {name: value}))
            assert len([*batch.observations("kmsg")]) == 2, (leaf.event, name)


def test_limit_of_event_kinds_applies_to_each_target() -> None:
    batch = EventBatch()
    for code in range(1000):
        batch.add(GPU, "nv_xid", xid(code))
    batch.add("gpu/0000:5e:00", "nv_xid", xid(79))
    assert counts(batch)["gpu/0000:5e:00", 79] == 1
    assert (len(counts(batch)), batch.dropped) == (65, 936)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 90)), max_size=600))
def test_each_event_is_counted_or_reported_as_dropped(events: list[tuple[int, int]]) -> None:
    batch = EventBatch()
    for target, code in events:
        batch.add(f"gpu/{target}", "nv_xid", xid(code))
    assert sum(counts(batch).values()) + batch.dropped == len(events)
    assert sum(len(observation.events) for observation in batch.observations("kmsg")) <= 512 + 1024
