"""Duration of one evaluation of an 8-GPU, 8-port node, beside a reference in the same run.

The reference is the encoding of the same readings as JSON with msgspec, which visits each value once. Reading
is not included; derivation is, and has a figure of its own. First: without state. Steady: temperatures, load
and traffic of a working node have changed. Storm: every counter has changed. Line: one line of the kernel log
on a node with 24 findings, derived and judged with the results of earlier rounds, and without.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.kernel_log import ACTIVE_GPUS, ACTIVE_XIDS, BEGIN
from fixtures.bundles import bundle_path
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import DerivedReadings, PlatformHints, derive
from nodeguard.derive.state import DeriveState, plan_derivation
from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import compile_rules
from nodeguard.judge.state import JudgeState
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.target import target_kind
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import read_source
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.registry import all_sources

BUNDLE = bundle_path("healthy-dgx-h100")
ROUNDS = 51
INTERVAL = 10.0
T = TypeVar("T")

# Signals that change on a working node, besides its counters of traffic.
CHANGING = frozenset(
    {
        "gpu.temperature",
        "gpu.temperature.limit_distance",
        "gpu.memory.temperature",
        "gpu.utilization",
        "host.uptime",
        "memory.available_ratio",
        "fs.free",
    }
)


def main() -> None:
    """Print the figures."""
    catalogue, signals = load_catalogue()
    machine = ReplayMachine(Recording.open(str(BUNDLE)))
    readings = [read_source(source, machine) for source in all_sources(catalogue.patterns)]
    counters = {name for name, signal in signals.items() if signal.kind == "counter"}
    wants, rows = plan_derivation(catalogue, signals), compile_rules(catalogue, signals)
    instant = machine.now()

    def derived(state: DeriveState, new: list[Reading], now: Instant) -> tuple[DeriveState, DerivedReadings]:
        return derive(wants, state, new, now, PlatformHints())

    def judged(state: JudgeState, inputs: DerivedReadings, now: Instant) -> JudgeState:
        platform = inputs.platform
        settings = JudgeSettings(platform.id, platform.expect) if platform else JudgeSettings()
        return judge(rows, state, inputs.readings, now, settings)[0]

    observations = [observation for reading in readings for observation in reading.observations]
    targets = len({observation.target for observation in observations})
    values = sum(len(observation.signals) for observation in observations)
    print(f"{targets} targets, {values} values, {len(catalogue.checks)} checks; medians of {ROUNDS}")
    reference = median(timed(lambda: msgspec.json.encode(readings))[1] for _ in range(ROUNDS))
    print(f"{'reference: readings as JSON':<30}{reference * 1000:7.2f} ms")
    for name, moving, remembers in (
        ("first round", frozenset[str](), False),
        ("steady round", CHANGING, True),
        ("storm", frozenset(counters), True),
    ):
        derive_state, judge_state = DeriveState(), JudgeState()
        took: list[tuple[float, float]] = []
        for step in range(ROUNDS + 1):
            now = replace(instant, mono=instant.mono + INTERVAL * step, wall=instant.wall + INTERVAL * step)
            new = moved(readings, moving, step, now.mono)
            (next_derive, inputs), deriving = timed(lambda: derived(derive_state, new, now))  # noqa: B023
            next_judge, judging = timed(lambda: judged(judge_state, inputs, now))  # noqa: B023
            took.append((deriving, judging))
            if remembers:
                derive_state, judge_state = next_derive, next_judge
        deriving, judging = (median(times) for times in zip(*took[1:], strict=True))
        print(
            f"{name:<30}{judging * 1000:7.2f} ms   {judging / reference:5.1f} times the reference"
            f"   (deriving {deriving * 1000:.2f} ms)"
        )
    line_rounds(readings, instant, reference)


def line_rounds(readings: list[Reading], instant: Instant, reference: float) -> None:
    """Print the durations of an evaluation after one line, with 24 findings on other GPUs."""
    catalogue, signals = load_catalogue()
    targets = {observation.target for reading in readings for observation in reading.observations}
    gpus = sorted(target for target in targets if target_kind(target) == "gpu")
    faults = [(gpu, xid) for gpu in gpus[:ACTIVE_GPUS] for xid in ACTIVE_XIDS]
    for name, is_incremental in (("line, incremental", True), ("line, everything", False)):
        pipeline = Pipeline(catalogue, signals, PlatformHints())
        pipeline.evaluate(readings, instant)
        took = []
        for step in range(1, ROUNDS + 1):
            now = replace(instant, mono=instant.mono + step, wall=instant.wall + step)
            lines = faults if step == 1 else [(gpus[-1], BEGIN)]
            if not is_incremental:
                pipeline.adopt(catalogue, signals)  # forgets earlier results
            verdict, seconds = timed(partial(pipeline.evaluate, [logged(lines, now.mono)], now))
            took.append(seconds)
        duration = median(took[2:])
        findings = len(verdict.findings)
        print(
            f"{name:<30}{duration * 1000:7.2f} ms   {duration / reference:5.1f} times the reference"
            f"   ({findings} findings)"
        )


def logged(lines: list[tuple[str, int]], at: float) -> Reading:
    """Return a reading of the kernel log with Xids, each on a GPU."""
    events = (
        (gpu, Event("gpu.xid.line", at, f"Xid {xid}", {"xid": xid, "rest": "pid=1, name=train"}))
        for gpu, xid in lines
    )
    return Reading("kmsg", at, tuple(Observation("kmsg", gpu, events=(event,)) for gpu, event in events))


def moved(readings: Iterable[Reading], moving: frozenset[str], step: int, at: float) -> list[Reading]:
    """Return the readings of a later time: signals that change, and all traffic, are a little higher."""

    def later(observation: Observation) -> Observation:
        rising = {
            name: value + step * 1e-3
            for name, value in observation.signals.items()
            if isinstance(value, (int, float)) and (name in moving or (moving and _is_traffic(name, value)))
        }
        return replace(observation, signals={**observation.signals, **rising}) if rising else observation

    return [
        replace(reading, at=at, observations=tuple(map(later, reading.observations))) for reading in readings
    ]


def _is_traffic(name: str, value: float) -> bool:
    return name.startswith("port.") and name.endswith(("_data", "_packets")) and value > 0


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its seconds."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


if __name__ == "__main__":
    main()
