"""Kinds of target of each signal: those of the recordings, and the checks of a site that can never fire."""

from __future__ import annotations

import pytest

from fixtures.bundles import bundle_path
from nodeguard.bundle.recording import Recording
from nodeguard.catalog.signal_targets import SignalTargets, kinds_of_reading
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
)
from nodeguard.model.target import target_kind
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.replay import replay_verdicts
from nodeguard.sources.registry import all_sources
from tests.judge.judged_node import check

CATALOGUE, SIGNALS = load_catalogue()
HOT = Compare("gpu.temperature", "above", 90)
DOWN = Increase("port.link_downed", 5.0, 3600.0)


@pytest.mark.parametrize(
    "name", ["healthy-dgx-h100", "efa-faults", "disk-errors", "dimm-errors", "probes-fail"]
)
def test_the_readings_of_a_recording_are_of_these_kinds(name: str) -> None:
    recording = Recording.open(str(bundle_path(name)))
    pipeline = Pipeline(CATALOGUE, SIGNALS, PlatformHints(), one_shot=True)
    [*_] = replay_verdicts(recording, all_sources(CATALOGUE.patterns), pipeline)
    others = {
        (signal, target)
        for target, state in pipeline.state.judged.targets.items()
        for source in state.sources.values()
        for signal in source.signals
        if target_kind(target) not in kinds_of_reading(signal.partition("~")[0])
    }
    assert others == set()


def test_the_built_in_checks_can_fire_on_their_targets() -> None:
    targets = SignalTargets(CATALOGUE.checks)
    problems = {check.id: targets.problem(check, SIGNALS) for check in CATALOGUE.checks}
    assert set(problems.values()) == {None}


NEVER = "so that 'a' never fires"


@pytest.mark.parametrize(
    ("when", "targets", "problem", "remedy"),
    [
        (
            HOT,
            ["port"],
            f"gpu.temperature is never read of port, {NEVER}",
            "use another signal, or write gpu",
        ),
        (
            HOT,
            ["node"],
            f"gpu.temperature is never read of node, {NEVER}",
            "use another signal, or write gpu",
        ),
        (
            Compare("gpu.count", "below", 8),
            ["gpu", "port"],
            f"gpu.count is never read of gpu or port, {NEVER}",
            "use another signal, or write node",
        ),
        (
            Sustained(AnyOf((HOT, Compare("fs.free", "below", 8))), 60.0),
            ["gpu"],
            f"fs.free is never read of gpu, {NEVER}",
            "use another signal, or write fs",
        ),
        (
            Compare("gpu.temperature", "above", than=Reference("signal", "port.rate")),
            ["gpu"],
            f"port.rate is never read of gpu, {NEVER}",
            "use another signal, or write nvswitch or port",
        ),
        (
            EventOccurred("gpu.xid.ecc"),
            ["port"],
            f"gpu.xid.ecc never occurs on port, {NEVER}",
            "use another signal, or write gpu or node",
        ),
        (
            AllOf((HOT, DOWN)),
            ["gpu", "port"],
            f"no gpu or port has all signals of the condition, {NEVER}",
            "use signals of one kind of target, or write one check for each kind",
        ),
    ],
)
def test_a_check_that_never_fires_has_a_problem(
    when: Condition, targets: list[str], problem: str, remedy: str
) -> None:
    found = SignalTargets(CATALOGUE.checks).problem(check(when, "a", targets=tuple(targets)), SIGNALS)
    assert found is not None
    assert found[1:] == (problem, remedy)


@pytest.mark.parametrize(
    ("when", "targets"),
    [
        (HOT, ["gpu", "port"]),
        (AnyOf((HOT, DOWN)), ["gpu", "port"]),
        (AllOf((HOT, EventOccurred("pci.fatal_error", over=60.0))), ["gpu"]),
        (EventOccurred("gpu.xid.ecc"), ["node"]),
    ],
)
def test_a_check_that_fires_on_one_of_its_targets_has_none(when: Condition, targets: list[str]) -> None:
    assert SignalTargets(CATALOGUE.checks).problem(check(when, targets=tuple(targets)), SIGNALS) is None


def test_a_message_names_no_signal_of_another_kind_of_target() -> None:
    shown = check(HOT, targets=("gpu",), message="{gpu.temperature}, {port.rate} Gb/s")
    assert SignalTargets(CATALOGUE.checks).problem(shown, SIGNALS) == (
        "message",
        "port.rate is never read of gpu, so that {port.rate} has no value",
        "remove it, or name a signal of gpu",
    )
