"""The socket of an aggregator with the fleet of fleet_commands.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aggregator.api.service import running_api
from tests.cli.fleet_commands import ACTIONS, FLEET


@pytest.fixture(scope="module")
def fleet_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an aggregator with an unhealthy node."""
    with running_api(tmp_path_factory.mktemp("run"), FLEET, ACTIONS) as address:
        yield address


@pytest.fixture
def fleet_commands(fleet_socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands query this aggregator, in 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", fleet_socket)
    ACTIONS.calls.clear()
    ACTIONS.error = ""
    ACTIONS.decisions.clear()
    ACTIONS.answers.clear()
