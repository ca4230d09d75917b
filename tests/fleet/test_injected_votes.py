"""Property: a fleet with injected faults diagnoses, suppresses and counts exactly as without them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.policy import InjectionPolicy, TopologyLabels
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.fleet.scene import AT_ONCE, CHECKS, Fleet, finding, in_order
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow

SIZE = 24
SLOTS = ("gpu/0000:3b:00", "gpu/0000:3c:00")
POLICY = replace(
    AT_ONCE,
    topologies=(TopologyLabels("rack", ("rack",)),),
    diagnosis=diagnosis_policy(suppression_min_nodes=6),
    injection=InjectionPolicy(allowed=True),
)


def faults(source: random.Random, least: int = 0) -> list[Any]:
    chosen = source.sample([(check, slot) for check in CHECKS for slot in SLOTS], source.randint(least, 2))
    return [
        finding(
            check,
            slot,
            health=source.choice([Health.FATAL, Health.SUSPECT]),
            age=source.choice([1.0, 30.0]),
            component=f"GPU-{source.randint(0, 40)}",
            topologies=("rack",),
        )
        for check, slot in chosen
    ]


def diagnosed(fleet: Fleet) -> tuple[object, ...]:
    """Return everything that the diagnosis and the statistics hold."""
    planner = fleet.planner
    diagnosis = planner.diagnosis
    return (
        dict(diagnosis.degraded_domains),
        dict(diagnosis.suppressed_checks),
        dict(diagnosis.bad_starts),
        diagnosis.voting.current_voters(fleet.mono),
        planner.component_faults.repeat_offenders(fleet.now),
        planner.job_nodes(fleet.now),
        {uid: report.findings for uid, report in planner.reports.items()},
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_injected_faults_change_no_diagnosis_and_no_statistics(seed: int, is_wide: bool) -> None:
    # The marks of injected faults use budgets, so only a run without marks compares the rest of the plan.
    policy = POLICY if is_wide else replace(POLICY, pause=True)
    plain, rehearsed = Fleet(SIZE, policy), Fleet(SIZE, policy)
    source = random.Random(seed)
    for _ in range(12):
        for _ in range(source.randint(1, 10)):
            number, real = source.randrange(SIZE), faults(source)
            injected = tuple(faults(source, least=1))
            component = ReportedComponent(f"GPU-{number}", "H100")
            inventory = Inventory(components={SLOTS[0]: component})
            proven = (in_order(targets=SLOTS),) if not real else ()
            plain.report(number, *real, proven=proven, inventory=inventory)
            rehearsed.report(number, *real, proven=proven, inventory=inventory, injected=injected)
        seconds = source.choice([1.0, 20.0, 120.0, 700.0])
        for fleet in (plain, rehearsed):
            fleet.after(seconds)
            fleet.plan()
        assert diagnosed(rehearsed) == diagnosed(plain)
        if not is_wide:
            real_incidents = {
                name: incident
                for incidents in rehearsed.planner.incidents.values()
                for name, incident in incidents.items()
                if not incident.injected
            }
            every = (item for items in plain.planner.incidents.values() for item in items.items())
            assert real_incidents == dict(every)
