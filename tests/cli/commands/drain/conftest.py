"""A node with a quarantine and its pods, and the command drain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.model.drain import DrainMode, DrainPolicy
from tests.aggregator.api.service import RecordingActions, running_api
from tests.cli.commands.drain.pods import Command, Pods
from tests.cli.fleet_commands import printed
from tests.fleet.scene import Fleet, finding


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def actions(pods: Pods) -> RecordingActions:
    recorded = RecordingActions()
    recorded.drain_cluster = pods
    return recorded


@pytest.fixture
def fleet() -> Fleet:
    """Three nodes of which the first has a lost GPU, and is quarantined; the policy disables drains."""
    fleet = Fleet(3)
    fleet.report(0, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


@pytest.fixture
def preview(
    fleet: Fleet, actions: RecordingActions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Run the command for a node; returns its output on one line."""
    with running_api(tmp_path, fleet, actions) as address:

        def run(node: str, *words: str, ask: Command = printed, request: bool = False) -> str:
            dry_run = () if request else ("--dry-run",)
            text = ask(capsys, "drain", "node", node, *dry_run, "--socket", address, *words)
            return " ".join(text.split())

        yield run


@pytest.fixture
def drain(preview: Command, fleet: Fleet) -> Command:
    """Request the drain of a node under a policy that only observes; returns the output on one line."""
    fleet.planner.set_policy(replace(fleet.policy, drain=DrainPolicy(DrainMode.OBSERVE)))
    fleet.after(10.0)

    def run(node: str, *words: str, ask: Command = printed) -> str:
        return preview(node, *words, ask=ask, request=True)

    return run
