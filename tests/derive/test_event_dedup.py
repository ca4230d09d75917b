from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.bundles import bundle_path
from fixtures.verdicts import judged
from nodeguard.derive.event_dedup import GRACE, DedupState, deduplicate_xids
from nodeguard.model.observation import Observation, Reading
from tests.derive.readings import GPUS, xid

LINE = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def nvml(*codes: int, at: float = 100.0) -> Reading:
    events = tuple(xid(code, "", at=at) for code in codes)
    read = Observation("nvml", GPUS[0], signals={"gpu.error": "none"})
    return Reading("nvml", at, (read, Observation("nvml", GPUS[0], events=events)) if events else (read,))


def log(*codes: int, at: float = 100.0, stamp: float | None = None, target: str = GPUS[0]) -> Reading:
    """A reading of the kernel log. stamp: when its lines say that they are of."""
    events = tuple(xid(code, LINE, at=at if stamp is None else stamp) for code in codes)
    return Reading("kmsg", at, (Observation("kmsg", target, events=events),) if events else ())


UNREADABLE = Reading("kmsg", 100.0, (), complete=False)


class XidSources:
    """What comes of readings, one round after the other."""

    def __init__(self, *first: Reading) -> None:
        self.waiting = DedupState()
        self.latest = {reading.source: reading for reading in first}

    def reported(self, *readings: Reading) -> list[tuple[str, object]]:
        """Source and code of each Xid that is reported after these readings."""
        self.latest |= {reading.source: reading for reading in readings}
        now = max(reading.at for reading in readings)
        self.waiting, after = deduplicate_xids(self.waiting, readings, self.latest, now)
        return [
            (reading.source, event.fields["xid"])
            for reading in after
            for observation in reading.observations
            for event in observation.events
        ]


def test_event_is_reported_at_once_without_a_readable_log() -> None:
    for first in ((), (UNREADABLE,)):
        assert XidSources(*first).reported(nvml(79)) == [("nvml", 79)]


def test_xid_from_both_sources_is_reported_once_in_either_order() -> None:
    sources = XidSources(log())
    assert sources.reported(nvml(79, at=100)) == []
    assert sources.reported(log(79, at=100.1)) == [("kmsg", 79)]
    assert sources.reported(nvml(at=200)) == []
    sources = XidSources(log())
    assert sources.reported(log(79, at=100)) == [("kmsg", 79)]
    assert sources.reported(nvml(79, at=100.1)) == []
    assert sources.reported(nvml(at=200)) == []
    assert XidSources().reported(nvml(79), log(79)) == [("kmsg", 79)]


def test_log_with_a_drifting_clock_confirms_an_event() -> None:
    sources = XidSources(log())
    assert sources.reported(nvml(79, at=5_000_000)) == []
    assert sources.reported(log(79, at=5_000_000.1, stamp=4_999_700)) == [("kmsg", 79)]
    assert sources.reported(nvml(at=5_000_060)) == []


def test_event_without_a_log_line_counts_once_at_its_own_time() -> None:
    sources = XidSources(log())
    assert sources.reported(nvml(79, at=100)) == []
    assert sources.reported(nvml(at=100 + GRACE / 2)) == []
    assert sources.reported(log(at=101 + GRACE)) == [], "it comes with a reading of NVML"
    waiting, [late] = deduplicate_xids(sources.waiting, [nvml(at=102 + GRACE)], sources.latest, 102 + GRACE)
    assert [event.at for observation in late.observations for event in observation.events] == [100]
    sources.waiting = waiting
    assert sources.reported(nvml(at=140)) == []


def test_event_is_reported_at_once_if_the_log_becomes_unreadable() -> None:
    sources = XidSources(log())
    assert sources.reported(nvml(79, at=100)) == []
    assert sources.reported(nvml(at=101), UNREADABLE) == [("nvml", 79)]


def test_two_readings_of_one_round_report_an_event_once() -> None:
    assert XidSources().reported(nvml(79, at=100), nvml(at=100.1)) == [("nvml", 79)]


def test_event_confirms_no_other_code_or_gpu() -> None:
    sources = XidSources(log())
    assert sources.reported(nvml(79, 13, at=100)) == []
    assert sources.reported(log(79, at=100.1), log(13, at=100.1, target=GPUS[1])) == [
        ("kmsg", 79),
        ("kmsg", 13),
    ]
    assert sources.reported(nvml(at=120)) == [("nvml", 13)]


def test_observation_without_events_is_dropped() -> None:
    _, [after] = deduplicate_xids(DedupState(), [nvml(79)], {"kmsg": log()}, 100.0)
    assert [observation.signals for observation in after.observations] == [{"gpu.error": "none"}]


def test_reading_without_xids_is_unchanged() -> None:
    quiet = nvml()
    waiting, [same] = deduplicate_xids(DedupState(), [quiet], {"kmsg": log()}, 100.0)
    assert (waiting, same) == (DedupState(), quiet)
    assert same is quiet


@pytest.mark.parametrize(
    ("bundle", "check", "source"),
    [
        ("xid-reported-twice", "gpu-ecc-uncorrectable", "kmsg"),
        ("xid-reported-twice", "gpu-xid-fatal", "nvml"),
        ("xid-unlogged", "gpu-xid-fatal", "nvml"),
    ],
)
def test_recorded_xid_is_counted_once(bundle: str, check: str, source: str) -> None:
    [result] = [finding for finding in judged(bundle_path(bundle)).findings if finding.check == check]
    assert [(evidence.source, evidence.count) for evidence in result.evidence if "Xid" in evidence.text] == [
        (source, 1)
    ]


@given(st.lists(st.sampled_from([13, 31, 79]), min_size=1, max_size=200))
def test_storm_has_bounded_memory(codes: list[int]) -> None:
    sources = XidSources(log())
    for number, code in enumerate(codes):
        sources.reported(nvml(code, at=100 + number / 100))
    assert sum(map(len, sources.waiting.pending_events.values())) <= 32
