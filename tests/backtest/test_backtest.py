"""Tests for nodeguard.backtest.backtest."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.policy import GracePeriods
from tests.backtest.scene import FREE, FleetHistory, shown

SLOW = replace(FREE, grace=GracePeriods(300.0, 300.0))


def test_a_replay_continues_until_the_last_findings_have_settled() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    tested = history.run(FREE, SLOW)
    assert [shown(result.marks) for result in tested.results] == [
        [("node-1", 105, None, "open")],
        [("node-1", 400, None, "open")],
    ]
    assert tested.until - tested.since == 401.0
