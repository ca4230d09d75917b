"""The agent that the tests of this package share."""

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.simulate.agent_reports import SimulatedAgent


@pytest.fixture(scope="session")
def agent() -> SimulatedAgent:
    return SimulatedAgent(*load_catalogue())
