"""The machine on which the steps of the pages are run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.steps.machine import Machine, running_machine
from tests.steps.reader import Reader, reading


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a clone, and nothing else."""
    with running_machine(tmp_path_factory.mktemp("m")) as running:
        yield running


@pytest.fixture
def reader(machine: Machine) -> Iterator[Reader]:
    with reading(machine) as follower:
        yield follower
