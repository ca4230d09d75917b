"""A fault that lasts longer than its silence is reported when the silence ends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import InjectionPolicy, Silence
from tests.fleet.scene import AT_ONCE, Fleet, finding


@pytest.mark.parametrize("injected", [False, True])
def test_a_silence_ends_for_a_fault_that_is_there(injected: bool) -> None:
    silence = Silence(node="node-1", until=datetime.fromtimestamp(1_700_000_100, UTC))
    policy = replace(AT_ONCE, silences=(silence,), injection=InjectionPolicy(allowed=True))
    fleet = Fleet(20, policy)
    faults = (finding("gpu-lost"),)
    fleet.report(1, *(() if injected else faults), injected=faults if injected else ())
    fleet.carry_out()
    fleet.after(99.0)
    plan = fleet.carry_out()
    assert (fleet.marked(), plan.incidents, fleet.planner.tracker.recorded.by_uid) == ([1], (), {})
    fleet.after(1.0)
    plan = fleet.carry_out()
    [incident] = plan.incidents
    assert (incident.state, incident.cause) == (IncidentState.MARKED, "gpu-lost")
    assert len(plan.events) == 1


def test_a_silence_ends_for_a_warning() -> None:
    silence = Silence(checks=("gpu-hot",), until=datetime.fromtimestamp(1_700_000_100, UTC))
    fleet = Fleet(2, replace(AT_ONCE, silences=(silence, Silence(checks=("gpu-ecc",)))))
    fleet.report(1, finding("gpu-hot", health=Health.WARNING), finding("gpu-ecc", "node"))
    fleet.carry_out()
    fleet.after(100.0)
    assert [incident.cause for incident in fleet.carry_out().incidents] == ["gpu-hot"]
