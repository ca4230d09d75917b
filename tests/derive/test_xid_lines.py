"""Lines of Xid as the driver prints them, each with the event and the verdict that it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.config.yaml_document import load_yaml
from nodeguard.derive.xid import decode_xid, summarize_xid
from nodeguard.derive.xid_index import index_xids
from nodeguard.model.observation import Event
from nodeguard.sources.kmsg import KmsgSource
from tests.catalog.test_formats import OneRecord
from tests.catalog.test_log_patterns import PATTERNS
from tests.derive.look import tables

LINES = load_yaml(Path(__file__).parent / "xid-lines.yaml").data

# Topics of which no line is public: the GPU's firmware prints them, or they are new.
WITHOUT_LINES = {"power", "confidential", "c2c", "test"}


def decoded(text: str) -> Event:
    """Return the event that a line of Xid becomes where nothing else happened. The driver is of branch 580."""
    [observation] = KmsgSource(PATTERNS).read(OneRecord(text))
    [event] = observation.events
    return decode_xid(event, tables(), 580, index_xids((summarize_xid(event),), tables()))


@pytest.mark.parametrize("topic", LINES)
def test_a_line_of_xid_becomes_its_event(topic: str) -> None:
    for row in LINES[topic]:
        event = decoded(row["line"])
        assert (event.signal, event.fields["verdict"]) == (f"gpu.xid.{topic}", row["verdict"]), row["line"]


def test_each_topic_has_five_lines_unless_none_is_public() -> None:
    assert {topic for topic, rows in LINES.items() if len(rows) < 5} == set()
    assert {xid.topic for xid in tables().xids.values()} == set(LINES) | WITHOUT_LINES
