from __future__ import annotations

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.derive.signals import SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Signal
from nodeguard.pipeline import signal_registry as signals_module
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.signal_registry import agent_reading, all_signals
from nodeguard.sources.registry import SOURCES, all_sources
from tests.sources.test_kmsg import PATTERNS


def pattern(signal: str) -> LogPattern:
    return LogPattern("one", "x", r"x (?P<y>.)", signal, "node", "about")


def test_signals_of_all_packages_are_registered() -> None:
    registry = all_signals(PATTERNS)
    for signals in (*(source.signals for source in SOURCES), SIGNALS):
        assert registry.keys() >= signals.keys()
    assert {pattern.signal for pattern in PATTERNS if pattern.signal} <= registry.keys()
    assert all(name == signal.name for name, signal in registry.items())


def test_a_counter_that_a_check_uses_has_a_highest_rate() -> None:
    """Counters that nodeguard derives itself have none: no hardware misreads them."""
    catalogue, signals = load_catalogue()
    used = {
        leaf.signal
        for check in catalogue.checks
        for leaf in check.leaves()
        if not isinstance(leaf, EventOccurred)
    }
    counters = {name for name in used if signals[name].kind == "counter"} - SIGNALS.keys()
    assert counters
    assert {name for name in counters if signals[name].max_rate <= 0} == set()


def test_an_event_of_two_sources_has_the_fields_of_its_log_line() -> None:
    assert {"pci", "xid", "gi", "ci", "rest"} == set(all_signals(PATTERNS)["gpu.xid.line"].fields)


def test_a_pattern_cannot_use_the_name_of_a_reading() -> None:
    with pytest.raises(ValueError, match=r"gpu\.temperature is declared twice"):
        all_signals([pattern("gpu.temperature")])


def test_two_packages_declare_no_signal_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    duplicate = {"host.uptime": Signal("host.uptime", "gauge", "once more")}
    monkeypatch.setattr(signals_module, "DERIVED_SIGNALS", duplicate)
    with pytest.raises(ValueError, match=r"host\.uptime is declared twice"):
        all_signals([])


def test_sources_have_names_and_instances_of_their_own() -> None:
    first, second = all_sources(PATTERNS), all_sources(PATTERNS)
    assert len({source.name for source in first}) == len(first)
    assert first[-1].name == "kmsg"
    assert not {id(source) for source in first} & {id(source) for source in second}
    for source in first:
        assert source.deadline > 0
        assert source.interval == int(source.interval), "replay counts in whole seconds"


def judged(judgement: Pipeline, at: float, trouble: str, lost: str = "") -> Verdict:
    return judgement.evaluate([agent_reading(at, trouble, lost)], Instant(1e9 + at, at, "boot"))


def test_an_unsaved_state_is_a_finding_until_it_is_saved() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    assert judged(judgement, 1.0, "").findings == ()
    [finding] = judged(judgement, 2.0, "/state/state cannot be written: the disk is full").findings
    assert (finding.check, finding.message) == (
        "agent-state-not-saved",
        "/state/state cannot be written: the disk is full",
    )
    assert judged(judgement, 3.0, "").findings == ()


def test_a_lost_state_is_a_finding() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    [finding] = judged(judgement, 1.0, "", "/state/state is truncated").findings
    assert (finding.check, finding.message) == ("agent-state-lost", "/state/state is truncated")
    assert judged(judgement, 2.0, "").findings == ()
