"""An evaluation that uses the results of earlier ones is equal to an evaluation of everything."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fixtures.bundles import bundle_path
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.judge.clear import ClearRequest
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.signal import Scalar
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import read_source
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.machine import LogRecords
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.registry import all_sources
from tests.sources.fake_machine import FakeMachine

CATALOGUE, SIGNALS = load_catalogue()
KMSG = KmsgSource(CATALOGUE.patterns)
GPUS = ("0000:1b:00", "0000:9d:00")
XIDS = [
    f"NVRM: Xid (PCI:{gpu}): {code}, pid={pid}, name=train, {text}"
    for gpu in GPUS
    for pid in (41, 42)
    for code, text in (
        (13, "Graphics Exception: ESR 0x1 (GPC 0, TPC 1, SM 0)"),
        (31, "MMU Fault"),
        (48, "DBE"),
        (63, "Row Remapper"),
        (79, "GPU has fallen off the bus"),
        (94, "Contained. RST: No, D-RST: No"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
    )
]
LINES = [*XIDS, *(pattern.example for pattern in CATALOGUE.patterns)]
VALUES: tuple[Scalar, ...] = (0, 1, 40, 1_000_000, 0.5, True, False, "none", "nvidia")


class Log(FakeMachine):
    """A machine with some lines in its kernel log, all of one time."""

    def __init__(self, lines: list[str], at: float) -> None:
        super().__init__()
        self._lines, self._at = lines, at

    def now(self) -> Instant:
        return Instant(self._at, self._at, "boot")

    def log(self, within: float = 0.0) -> LogRecords:
        assert within >= 0
        records = (f"3,{number},{self._at * 1e6:.0f},-;{line}" for number, line in enumerate(self._lines))
        return LogRecords(tuple(records), last=len(self._lines))


@cache
def recorded(name: str) -> tuple[dict[str, Reading], Instant]:
    """Return the readings of a bundle by source, and their time."""
    machine = ReplayMachine(Recording.open(str(bundle_path(name))))
    readings = [read_source(source, machine) for source in all_sources(CATALOGUE.patterns)]
    return {reading.source: reading for reading in readings}, machine.now()


class Change(NamedTuple):
    """Another value of one signal in a reading; without a value, the target is gone. Indexes wrap."""

    source: int
    observation: int
    signal: int
    value: Scalar | None


class Step(NamedTuple):
    """One round: seconds since the one before, a step of the wall clock, lines of the log, and readings."""

    after: float
    clock_step: float
    lines: list[str]
    changes: list[Change]
    clears: bool


changes = st.builds(
    Change,
    st.integers(0, 40),
    st.integers(0, 400),
    st.integers(0, 100),
    st.one_of(st.none(), st.sampled_from(VALUES)),
)
steps = st.builds(
    Step,
    st.sampled_from((0.0, 0.1, 1.0, 10.0, 10.0, 59.0, 61.0, 600.0, 3600.0, 86_400.0)),
    st.sampled_from((0.0, 0.0, 0.0, 0.001, 60.0)),
    st.lists(st.sampled_from(LINES), max_size=3),
    st.lists(changes, max_size=2),
    st.booleans(),
)


def changed(reading: Reading, change: Change, at: float) -> Reading:
    """Return a reading at a time after one change."""
    observations = list(reading.observations)
    index = change.observation % len(observations)
    observation = observations[index]
    if change.value is None:
        del observations[index]
    elif observation.signals:
        name = list(observation.signals)[change.signal % len(observation.signals)]
        observations[index] = replace(observation, signals={**observation.signals, name: change.value})
    return replace(reading, observations=tuple(observations), at=at)


def round_of(step: Step, readings: dict[str, Reading], at: float) -> list[Reading]:
    """Return the readings of a step, and keep them as the latest."""
    sources = [source for source, reading in readings.items() if reading.observations and source != "kmsg"]
    names = {sources[change.source % len(sources)]: change for change in step.changes}
    for name, change in names.items():
        readings[name] = changed(readings[name], change, at)
    log = [Reading("kmsg", at, tuple(KMSG.read(Log(step.lines, at))))] if step.lines else []
    return [*(readings[name] for name in names), *log]


def forget(pipeline: Pipeline) -> None:
    """Remove the results of earlier evaluations."""
    state, pipeline._derived = pipeline.state, None
    pipeline.state = replace(state, judged=replace(state.judged, results={}))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(("healthy-dgx-h100", "gpu-gone", "port-flaps")), st.lists(steps, max_size=8))
def test_an_incremental_evaluation_is_equal_to_a_full_one(bundle: str, rounds: list[Step]) -> None:
    first, start = recorded(bundle)
    readings, now = dict(first), start
    incremental, full = (Pipeline(CATALOGUE, SIGNALS, PlatformHints()) for _ in range(2))
    verdict = evaluate_both(incremental, full, list(readings.values()), now)
    for step in rounds:
        now = replace(now, mono=now.mono + step.after, wall=now.wall + step.after + step.clock_step)
        if step.clears and verdict.findings:
            finding = verdict.findings[0]
            request = ClearRequest(finding.check, finding.target, by="ann")
            forget(full)
            assert incremental.clear(request, now) == full.clear(request, now)
        verdict = evaluate_both(incremental, full, round_of(step, readings, now.mono), now)


def evaluate_both(incremental: Pipeline, full: Pipeline, readings: list[Reading], now: Instant) -> Verdict:
    forget(full)
    verdict = incremental.evaluate(readings, now)
    assert verdict == full.evaluate(readings, now)
    assert incremental.state.judged.targets == full.state.judged.targets
    return verdict
