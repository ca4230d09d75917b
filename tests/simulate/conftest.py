from __future__ import annotations

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.simulate.agent_reports import SimulatedAgent


@pytest.fixture(scope="session")
def agent() -> SimulatedAgent:
    """What is said by the built-in catalogue; what it was asked before it says at once."""
    return SimulatedAgent(*load_catalogue())
