"""Every bundle comes to the verdict that people agreed to.

Every check fires somewhere and is quiet on healthy machines.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures.build.expect import bundles, expected, judged
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.finding import Verdict
from nodeguard.pipeline.agent_signals import SOURCE as OWN


@cache
def verdict(directory: Path) -> Verdict:
    return judged(directory)


@pytest.mark.parametrize("directory", bundles(), ids=lambda path: path.name)
def test_a_bundle_comes_to_its_verdict(directory: Path) -> None:
    agreed = json.loads((directory / "expected.json").read_text())
    assert expected(verdict(directory)) == agreed


@pytest.mark.parametrize(
    "directory", [path for path in bundles() if path.name.startswith("healthy-")], ids=lambda path: path.name
)
def test_a_healthy_machine_is_quiet(directory: Path) -> None:
    said: dict[str, Any] = expected(verdict(directory))
    assert (said["exit"], said["findings"], said["unread"]) == (0, [], [])


def test_every_check_of_the_machine_fires_in_some_bundle() -> None:
    catalogue, _ = load_catalogue()
    fired = {
        one.check
        for directory in bundles()
        for one in (*verdict(directory).findings, *verdict(directory).informational)
    }
    of_machine = {check.id for check in catalogue.checks if check.family != OWN}
    assert sorted(of_machine - fired) == []
