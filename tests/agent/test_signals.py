from __future__ import annotations

import pytest

from nodeguard.agent import signals as signals_module
from nodeguard.agent.signals import known
from nodeguard.derive.signals import SIGNALS
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.signal import Signal
from nodeguard.sources.every import SOURCES, every_source
from tests.sources.test_kmsg import PATTERNS


def pattern(signal: str) -> LogPattern:
    return LogPattern("one", "x", r"x (?P<y>.)", signal, "node", "about")


def test_every_signal_of_every_room_is_known() -> None:
    found = known(PATTERNS)
    for signals in (*(source.signals for source in SOURCES), SIGNALS):
        assert found.keys() >= signals.keys()
    assert {one.signal for one in PATTERNS if one.signal} <= found.keys()
    assert all(name == signal.name for name, signal in found.items())


def test_an_event_that_both_tell_of_has_the_fields_of_its_log_line() -> None:
    assert {"pci", "xid", "gi", "ci", "rest"} == set(known(PATTERNS)["gpu.xid.line"].fields)


def test_a_pattern_takes_no_reading_s_name() -> None:
    with pytest.raises(ValueError, match=r"gpu\.temperature is declared twice"):
        known([pattern("gpu.temperature")])


def test_two_rooms_declare_no_name_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    again = {"host.uptime": Signal("host.uptime", "gauge", "once more")}
    monkeypatch.setattr(signals_module, "SIGNALS", again)
    with pytest.raises(ValueError, match=r"host\.uptime is declared twice"):
        known([])


def test_sources_have_names_and_instances_of_their_own() -> None:
    first, second = every_source(PATTERNS), every_source(PATTERNS)
    assert len({source.name for source in first}) == len(first)
    assert first[-1].name == "kmsg"
    assert not {id(source) for source in first} & {id(source) for source in second}
    for source in first:
        assert source.deadline > 0
        assert source.interval == int(source.interval), "replay counts in whole seconds"
