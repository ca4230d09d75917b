"""The machine on which the steps of the pages are run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.steps.machine import Machine, running_machine
from tests.steps.reader import Reader, reading

# The commands of a page that do not install the Python package.
EXCEPT_PIP = r"^(?!/opt/nodeguard/bin/pip)"


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a clone, and nothing else."""
    with running_machine(tmp_path_factory.mktemp("m")) as running:
        yield running


@pytest.fixture(scope="session")
def installed(machine: Machine) -> Machine:
    """The machine with nodeguard, as the quick starts install it."""
    with reading(machine) as follower:
        follower.follow("docs/quickstart/one-machine.md", "Install", leave_out="-VERSION-")
        follower.follow(
            "docs/install/standalone.md", "Set up", leave_out=EXCEPT_PIP, files=["/root/agent.yaml"]
        )
    return machine


@pytest.fixture
def reader(machine: Machine) -> Iterator[Reader]:
    with reading(machine) as follower:
        yield follower
