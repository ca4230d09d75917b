"""A fleet with faults of one node that the policy drains, and its drain candidates."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.drains import fleet_drain_candidates
from nodeguard.model.drain import DrainMode, DrainPolicy, DrainRule, DrainWhen
from nodeguard.model.policy import Policy
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.fleet.scene import AT_ONCE, Fleet, finding

GPU, OTHER = "gpu/0000:3b:00", "gpu/0000:3c:00"
EVICT = DrainPolicy(DrainMode.ENFORCE, (DrainRule(DrainWhen.IMMEDIATELY, checks=("gpu-*", "port-down")),))
DRAINS = replace(AT_ONCE, drain=EVICT)


def inventory(target: str = GPU, gpu_id: str = "GPU-1") -> Inventory:
    return Inventory(components={target: ReportedComponent(gpu_id)})


def faulty(*faults: Any, policy: Policy = DRAINS, **more: Any) -> Fleet:
    """Return a fleet with faults of node 0 after its marks are observed."""
    fleet = Fleet(16, policy)
    fleet.report(0, *(faults or (finding(),)), **more)
    fleet.carry_out()
    return fleet


def candidates(fleet: Fleet) -> list[DrainCandidate]:
    return fleet_drain_candidates(fleet.planner, fleet.now)


def only(fleet: Fleet) -> DrainCandidate:
    [candidate] = candidates(fleet)
    return candidate
