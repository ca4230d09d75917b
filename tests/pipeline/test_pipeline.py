from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Compare, Condition, EventOccurred, Increase, Reference, Sustained
from nodeguard.model.finding import DataStatus, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import DETACHED, Event, Observation, Reading, Status
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE, gpu_target, nvlink_target
from nodeguard.pipeline.pipeline import Pipeline
from tests.judge.judged_node import check

SIGNALS = signals_by_name(
    Signal("a.level", "gauge", "a level"),
    Signal("a.errors", "counter", "errors"),
    Signal("a.happened", "event", "something"),
)
GPU, OTHER = gpu_target("1b:00"), gpu_target("3b:00")
LOW = Compare("a.level", "below", 5)


def judgement(*conditions: Condition, site: PlatformHints | None = None, **more: Any) -> Pipeline:
    checks = tuple(check(when, f"check-{at}", family=f"family-{at}") for at, when in enumerate(conditions))
    platforms = (Platform("p", "P", (), {"gpus": 8}, ""),)
    return Pipeline(Catalogue(checks=checks, platforms=platforms), SIGNALS, site or PlatformHints(), **more)


def evaluate(pipeline: Pipeline, at: float, *events: Event, **signals: Any) -> Verdict:
    """Return the verdict after one round: signals by name, `a__level` for `a.level`; events of the kernel log."""
    values = {name.replace("__", "."): value for name, value in signals.items()}
    readings = [
        Reading("memory", at, (Observation("memory", NODE, signals=values),)),
        Reading("kmsg", at, (Observation("kmsg", NODE, events=events),) if events else ()),
    ]
    return pipeline.evaluate(readings, Instant(1e9 + at, at, "boot"))


def fired(verdict: Verdict) -> list[str]:
    return [finding.check for finding in verdict.findings]


def test_a_reading_comes_to_a_verdict() -> None:
    assert fired(evaluate(judgement(LOW), 0.0, a__level=3)) == ["check-0"]
    assert evaluate(judgement(LOW), 0.0, a__level=7).health == Health.OK


def test_readings_of_earlier_rounds_count() -> None:
    pipeline = judgement(Increase("a.errors", 3, 60.0))
    assert [fired(evaluate(pipeline, at, a__errors=at)) for at in (0.0, 2.0, 4.0)] == [[], [], ["check-0"]]


def test_a_source_that_is_not_due_keeps_its_last_reading() -> None:
    pipeline = judgement(LOW)
    evaluate(pipeline, 0.0, a__level=3)
    assert fired(pipeline.evaluate([], Instant(1e9 + 10, 10.0, "boot"))) == ["check-0"]


def test_an_event_is_active_for_the_boot() -> None:
    pipeline = judgement(EventOccurred("a.happened"))
    evaluate(pipeline, 10.0, Event("a.happened", 5.0))
    assert fired(evaluate(pipeline, 20.0)) == ["check-0"]


def test_only_selected_checks_are_evaluated() -> None:
    pipeline = judgement(LOW, LOW, selection=frozenset({"check-1"}))
    assert fired(evaluate(pipeline, 0.0, a__level=3)) == ["check-1"]


def test_a_one_shot_evaluation_needs_no_duration() -> None:
    lasting = Sustained(LOW, 60.0)
    assert fired(evaluate(judgement(lasting), 0.0, a__level=3)) == []
    [early] = evaluate(judgement(lasting, one_shot=True), 0.0, a__level=3).findings
    assert early.note == "seen once; the agent reports it after 1 min"


def test_the_site_sets_the_platform() -> None:
    few = Compare("a.level", "below", than=Reference("platform", "gpus"))
    verdict = evaluate(judgement(few, site=PlatformHints(platform="p")), 0.0, a__level=7)
    assert (verdict.platform, fired(verdict)) == ("p", ["check-0"])
    unknown = evaluate(judgement(few), 0.0, a__level=7)
    assert (unknown.platform, fired(unknown)) == ("", [])


def test_a_source_without_readings_makes_its_findings_stale() -> None:
    pipeline = judgement(LOW, Sustained(LOW, 60.0))
    reading = Reading("memory", 0.0, (Observation("memory", NODE, signals={"a.level": 3}),), valid_for=30.0)
    rounds = {}
    for at, new in ((0.0, reading), (20.0, Reading("kmsg", 20.0, ())), (100.0, Reading("kmsg", 100.0, ()))):
        rounds[at] = pipeline.evaluate([new], Instant(1e9 + at, at, "boot"))
    assert [fired(verdict) for verdict in rounds.values()] == [["check-0"]] * 3, "nothing settles unread"
    assert [verdict.findings[0].data_status for verdict in rounds.values()] == ["fresh", "fresh", "stale"]
    assert [(lost.source, lost.reason) for lost in rounds[100.0].read_failures] == [
        ("memory", "not read for 100 s")
    ]


def test_a_new_catalogue_is_adopted_with_the_old_state() -> None:
    pipeline = judgement(Sustained(LOW, 60.0))
    evaluate(pipeline, 0.0, a__level=3)
    strict = check(Compare("a.level", "below", 9), "strict")
    pipeline.adopt(Catalogue(checks=(check(Sustained(LOW, 60.0), "check-0"), strict)), SIGNALS)
    assert fired(evaluate(pipeline, 70.0, a__level=3)) == ["check-0", "strict"]


@pytest.mark.parametrize("status", ["hung", "failed"])
def test_a_derived_fault_stays_active_while_its_gpu_cannot_be_read(status: Status) -> None:
    slot = gpu_target("3b:00")
    links = [nvlink_target(slot, at) for at in range(3)]

    def read(*down: str) -> tuple[Observation, ...]:
        return (
            Observation("nvml", slot, signals={"gpu.nvlink.active": len(links) - len(down)}),
            *(Observation("nvml", link, signals={"nvlink.active": link not in down}) for link in links),
        )

    silent = [Observation("nvml", where, status, detail="no answer") for where in (slot, *links)]
    pipeline = Pipeline(*load_catalogue(), PlatformHints())
    for at, down in ((0.0, []), (10.0, links[:1]), (40.0, links[:1])):
        before = pipeline.evaluate([Reading("nvml", at, read(*down))], Instant(1e9 + at, at, "boot"))
    after = pipeline.evaluate([Reading("nvml", 50.0, tuple(silent))], Instant(1e9 + 50, 50.0, "boot"))
    assert fired(before) == ["nvlink-down"]
    [active] = (finding for finding in after.findings if finding.check == "nvlink-down")
    assert active.data_status == DataStatus.STALE


def released(*slots: str) -> Reading:
    """Return a reading in which all or some GPUs are detached."""
    if not slots:
        return Reading("nvml", 0.0, (Observation("nvml", NODE, "detached", detail=DETACHED),), complete=False)
    left = tuple(Observation("nvml", slot, "detached", detail=DETACHED) for slot in slots)
    return Reading("nvml", 0.0, (Observation("nvml", NODE, signals={"nvml.ready": True}), *left))


def at(pipeline: Pipeline, seconds: float, *readings: Reading) -> Verdict:
    moved = [replace(reading, at=seconds) for reading in readings]
    return pipeline.evaluate(moved, Instant(1e9 + seconds, seconds, "boot"))


@pytest.mark.parametrize("slots", [(), (GPU,)])
def test_a_detached_gpu_is_not_applicable_and_keeps_its_findings(slots: tuple[str, ...]) -> None:
    level = signals_by_name(Signal("gpu.level", "gauge", "a level"))
    pipeline = Pipeline(
        Catalogue(checks=(check(Compare("gpu.level", "below", 5), "low", targets=("gpu",)),)),
        level,
        PlatformHints(),
    )
    read = Reading(
        "nvml", 0.0, tuple(Observation("nvml", slot, signals={"gpu.level": 3}) for slot in (GPU, OTHER))
    )
    assert [finding.target for finding in at(pipeline, 0.0, read).findings] == [GPU, OTHER]
    left = at(pipeline, 10.0, released(*slots))
    assert (left.data_status, left.read_failures) == (DataStatus.NOT_APPLICABLE, ())
    assert left.health == Health.SUSPECT
    [detached] = [finding for finding in left.findings if finding.target == GPU]
    assert (detached.data_status, detached.note) == (
        DataStatus.NOT_APPLICABLE,
        "not read while the GPU is detached",
    )
    again = at(pipeline, 20.0, read)
    assert {finding.data_status for finding in again.findings} == {DataStatus.FRESH}


def test_a_detached_gpu_is_not_lost() -> None:
    pipeline = Pipeline(*load_catalogue(), PlatformHints())
    there = tuple(
        Observation("pci", slot, signals={"pci.present": True, "pci.driver": "nvidia", "pci.procfs": True})
        for slot in (GPU, OTHER)
    )
    node = Observation("nvml", NODE, signals={"nvml.ready": True, "driver.loaded": True})
    seen = tuple(Observation("nvml", slot, signals={"gpu.temperature": 40}) for slot in (GPU, OTHER))
    assert (
        at(pipeline, 1000.0, Reading("pci", 0.0, there), Reading("nvml", 0.0, (node, *seen))).findings == ()
    )
    one_left = Reading("nvml", 0.0, (node, Observation("nvml", GPU, "detached", detail=DETACHED), seen[1]))
    for seconds, reading in ((1010.0, one_left), (1020.0, released())):
        left = at(pipeline, seconds, reading)
        assert (left.findings, left.data_status) == ((), DataStatus.NOT_APPLICABLE)


def test_each_xid_counts_once_although_nvml_and_the_kernel_log_report_it() -> None:
    pipeline = Pipeline(*load_catalogue(), PlatformHints())

    def seen(source: str, code: int, count: int = 1) -> Reading:
        event = Event("gpu.xid.line", 1.0, "", {"xid": code, "rest": ""}, count)
        return Reading(source, 0.0, (Observation(source, GPU, events=(event,)),))

    at(pipeline, 10.0, seen("kmsg", 79), seen("nvml", 79))
    at(pipeline, 12.0, seen("kmsg", 31, count=5), seen("nvml", 31))
    at(pipeline, 40.0, seen("kmsg", 4_999), seen("nvml", 4_999))
    assert pipeline.xid_events == {(GPU, 79): 1, (GPU, 31): 5, (GPU, 0): 1}
