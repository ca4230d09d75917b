from __future__ import annotations

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.simulate.agent_reports import SimulatedAgent


@pytest.fixture(scope="session")
def agent() -> SimulatedAgent:
    """An agent with the built-in catalogue, which computes each report once."""
    return SimulatedAgent(*load_catalogue())
