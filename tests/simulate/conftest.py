from __future__ import annotations

import pytest

from nodeguard.cli.knowledge import knowledge
from nodeguard.simulate.timeline import Agent


@pytest.fixture(scope="session")
def agent() -> Agent:
    """What is said by the built-in catalogue; what it was asked before it says at once."""
    return Agent(*knowledge())
