"""A fleet with an unhealthy node behind an API socket, and commands that query it; see conftest.py."""

from __future__ import annotations

import pytest

from nodeguard.cli.main import main
from tests.aggregator.api.service import RecordingActions
from tests.fleet.scene import Fleet, finding


def _fleet() -> Fleet:
    fleet = Fleet(12)
    fleet.report(1, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


FLEET = _fleet()
ACTIONS = RecordingActions()


def name() -> str:
    return next(iter(FLEET.planner.tracker.recorded.by_uid["uid-1"]))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 3
    return capsys.readouterr().err
