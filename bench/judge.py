"""How long it takes to judge one round of an 8-GPU, 8-port node, beside a reference in the same run.

The reference is encoding the same readings as JSON with msgspec, which is as fast as Python gets at touching
each value once. Reading is not part of it; derivation is, and has a figure of its own. First: with no memory.
Steady: the node works, so that its temperatures, load and traffic have moved. Storm: every counter has moved.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from fixtures.bundles import bundle_path
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import DerivedReadings, PlatformHints, derive
from nodeguard.derive.state import DeriveState, plan_derivation
from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import compile_rules
from nodeguard.judge.state import JudgeState
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation, Reading
from nodeguard.pipeline.reader import read_source
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.registry import all_sources

BUNDLE = bundle_path("healthy-dgx-h100")
ROUNDS = 51
INTERVAL = 10.0
T = TypeVar("T")

# What moves on a node that works, besides its counters of traffic.
LIVELY = frozenset(
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
        return derive(catalogue, wants, state, new, now, PlatformHints())

    def judged(state: JudgeState, one: DerivedReadings, now: Instant) -> JudgeState:
        make = one.platform
        return judge(
            rows, state, one.readings, now, JudgeSettings(make.id, make.expect) if make else JudgeSettings()
        )[0]

    slots = len({one.target for reading in readings for one in reading.observations})
    values = sum(len(one.signals) for reading in readings for one in reading.observations)
    print(f"{slots} slots, {values} values, {len(catalogue.checks)} checks; medians of {ROUNDS}")
    reference = median(timed(lambda: msgspec.json.encode(readings))[1] for _ in range(ROUNDS))
    print(f"{'reference: readings as JSON':<30}{reference * 1000:7.2f} ms")
    for name, moving, remembers in (
        ("first round", frozenset[str](), False),
        ("steady round", LIVELY, True),
        ("storm", frozenset(counters), True),
    ):
        before, memory = DeriveState(), JudgeState()
        took: list[tuple[float, float]] = []
        for step in range(ROUNDS + 1):
            now = replace(instant, mono=instant.mono + INTERVAL * step, wall=instant.wall + INTERVAL * step)
            new = moved(readings, moving, step, now.mono)
            (after, one), deriving = timed(lambda: derived(before, new, now))  # noqa: B023
            known, judging = timed(lambda: judged(memory, one, now))  # noqa: B023
            took.append((deriving, judging))
            if remembers:
                before, memory = after, known
        deriving, judging = (median(times) for times in zip(*took[1:], strict=True))
        print(
            f"{name:<30}{judging * 1000:7.2f} ms   {judging / reference:5.1f} times the reference"
            f"   (deriving {deriving * 1000:.2f} ms)"
        )


def moved(readings: Iterable[Reading], moving: frozenset[str], step: int, at: float) -> list[Reading]:
    """The readings of a later moment: what moves is a little higher, and so is all traffic."""

    def later(one: Observation) -> Observation:
        rising = {
            name: value + step * 1e-3
            for name, value in one.signals.items()
            if isinstance(value, (int, float)) and (name in moving or (moving and _is_traffic(name, value)))
        }
        return replace(one, signals={**one.signals, **rising}) if rising else one

    return [replace(one, at=at, observations=tuple(map(later, one.observations))) for one in readings]


def _is_traffic(name: str, value: float) -> bool:
    return name.startswith("port.") and name.endswith(("_data", "_packets")) and value > 0


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and the seconds that it took."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


main()
