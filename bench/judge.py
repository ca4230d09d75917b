"""How long it takes to judge one round of an 8-GPU, 8-port node, beside a reference in the same run.

The reference is encoding the same readings as JSON with msgspec, which is as fast as Python gets at touching
each value once. Reading is not part of it. First: with no memory. Steady: nothing has changed. Busy: every
counter has moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec
from msgspec.structs import replace

from nodeguard.agent.judgement import Judgement
from nodeguard.agent.reading import read
from nodeguard.bundle.recording import Recording
from nodeguard.cli.knowledge import knowledge
from nodeguard.derive.derive import Site
from nodeguard.model.observation import Observation, Reading
from nodeguard.sources.every import every_source
from nodeguard.sources.replay import ReplayMachine

BUNDLE = Path(__file__).parent.parent / "fixtures" / "healthy-dgx-h100"
ROUNDS = 101


def main() -> None:
    """Print the figures."""
    catalogue, signals = knowledge()
    recording = Recording.open(str(BUNDLE))
    machine = ReplayMachine(recording)
    readings = [read(source, machine) for source in every_source(catalogue.patterns)]
    instant = machine.now()
    counters = {name for name, signal in signals.items() if signal.kind == "counter"}

    def judgement() -> Judgement:
        return Judgement(catalogue, signals, Site(), one_look=True)

    def at(seconds: float) -> object:
        return replace(instant, mono=instant.mono + seconds, wall=instant.wall + seconds)

    fresh = [judgement() for _ in range(ROUNDS)]
    old = judgement()
    old.judge(readings, instant)
    slots = len({one.slot for reading in readings for one in reading.observations})
    values = sum(len(one.signals) for reading in readings for one in reading.observations)
    print(f"{slots} slots, {values} values, {len(catalogue.checks)} checks")
    reference = timed("reference: readings as JSON", lambda _: msgspec.json.encode(readings))
    for name, one in (
        ("first round", lambda step: fresh[step].judge(readings, instant)),
        ("steady round", lambda step: old.judge(readings, at(10 * (step + 1)))),  # type: ignore[arg-type]
        ("busy round", lambda step: old.judge(moved(readings, counters, step + 1), at(10 * (ROUNDS + step)))),  # type: ignore[arg-type]
    ):
        timed(name, one, reference)


def moved(readings: list[Reading], counters: set[str], step: int) -> list[Reading]:
    """The readings with every counter a little higher."""

    def higher(one: Observation) -> Observation:
        rising = {name: value + step * 1e-3 for name, value in one.signals.items() if name in counters}  # type: ignore[operator]
        return replace(one, signals={**one.signals, **rising}) if rising else one

    return [replace(reading, observations=tuple(map(higher, reading.observations))) for reading in readings]


def timed(name: str, call: Callable[[int], object], reference: float = 0.0) -> float:
    """Print and return the median seconds of a call."""
    took = []
    for step in range(ROUNDS):
        began = time.perf_counter()
        call(step)
        took.append(time.perf_counter() - began)
    middle = median(took)
    ratio = f"   {middle / reference:5.1f} times the reference" if reference else ""
    print(f"{name:<30}{middle * 1000:7.2f} ms{ratio}")
    return middle


main()
