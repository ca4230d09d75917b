"""Injected faults in the fleet: marked and released like real ones, and apart from them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import Hold, InjectionPolicy, Mode, Policy, SoakPeriod
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.fleet.scene import AT_ONCE, Fleet, finding, in_order

ALLOWED = replace(AT_ONCE, injection=InjectionPolicy(allowed=True))
GPU = "gpu/0000:3b:00"


def inject(fleet: Fleet, *faults: str, number: int = 0) -> None:
    injected = tuple(finding(check, age=0.0) for check in faults)
    fleet.report(number, proven=(in_order(),), injected=injected)


def test_an_injected_fault_is_marked_and_released_after_its_check_passed() -> None:
    fleet = Fleet(2, replace(ALLOWED, soak=SoakPeriod(60.0, 600.0, 86_400.0)))
    inject(fleet, "gpu-lost")
    plan = fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/quarantine=gpu-bus"]
    [cause] = fleet.record().causes
    assert cause.injected
    [incident] = fleet.incidents()
    assert (incident.state, incident.injected, incident.cause) == (IncidentState.MARKED, True, "gpu-lost")
    assert incident.message == f"injected: gpu-lost at {GPU}"
    assert "-injected-" in incident.name
    [event] = plan.events
    assert event.message.startswith("gpu-lost on GPU 0000:3b:00: injected: ")
    condition = fleet.nodes["uid-0"].condition
    assert condition is not None
    assert condition.message.startswith("injected: GPU 0000:3b:00: gpu-lost at")
    fleet.after(300.0)
    fleet.carry_out()
    assert fleet.marked() == [0]  # the passing results of the check itself release nothing meanwhile
    fleet.report(0)
    fleet.carry_out()
    assert [item.state for item in fleet.incidents()] == [IncidentState.RECOVERING]
    fleet.after(61.0)
    fleet.carry_out()
    assert fleet.marked() == []
    assert [item.state for item in fleet.incidents()] == [IncidentState.RESOLVED]


@pytest.mark.parametrize(
    ("rule", "refusal"),
    [
        (InjectionPolicy(), "the policy allows no injected faults: injection.allowed is false"),
        (
            InjectionPolicy(True, ("port-*",)),
            "the policy allows no injected fault of gpu-lost: see injection.checks",
        ),
    ],
)
def test_a_fault_that_the_policy_does_not_allow_has_no_effect(rule: InjectionPolicy, refusal: str) -> None:
    fleet = Fleet(1, replace(AT_ONCE, injection=rule))
    inject(fleet, "gpu-lost")
    plan = fleet.carry_out()
    assert (plan.nodes, plan.incidents, plan.events, fleet.planner.tracker.decisions) == ((), (), (), {})
    [fault] = fleet.planner.reports["uid-0"].injections
    assert fault.refusal == refusal
    fleet.planner.set_policy(ALLOWED)
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_an_unknown_check_is_refused() -> None:
    fleet = Fleet(1, ALLOWED)
    inject(fleet, "no-such-check")
    fleet.carry_out()
    assert fleet.marked() == []
    [fault] = fleet.planner.reports["uid-0"].injections
    assert fault.refusal == "no check no-such-check is known"


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (replace(ALLOWED, mode=Mode.OBSERVE), IncidentState.DRY_RUN),
        (replace(ALLOWED, pause=True), IncidentState.WITHHELD),
        (replace(ALLOWED, holds=(Hold(checks=("gpu-lost",)),)), IncidentState.WITHHELD),
        (replace(ALLOWED, holds=(Hold(node="node-0"),)), IncidentState.WITHHELD),
    ],
    ids=["observe", "pause", "hold-check", "hold-node"],
)
def test_an_injected_fault_obeys_the_policy(policy: Policy, state: IncidentState) -> None:
    fleet = Fleet(1, policy)
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    assert fleet.marked() == []
    assert [item.state for item in fleet.incidents()] == [state]


def test_a_real_fault_is_not_hidden_by_an_injected_one_of_its_check() -> None:
    fleet = Fleet(1, ALLOWED)
    fleet.report(0, finding(), injected=(finding(message="another text"),))
    fleet.carry_out()
    [incident] = fleet.incidents()
    assert (incident.injected, incident.message) == (False, f"gpu-lost at {GPU}")
    assert [cause.injected for cause in fleet.record().causes] == [False]
    [fault] = fleet.planner.reports["uid-0"].injections
    assert fault.refusal == "gpu-lost finds a fault there itself"


def test_a_real_fault_takes_over_the_mark_of_an_injected_one() -> None:
    fleet = Fleet(1, ALLOWED)
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    fleet.report(0, finding(), injected=(finding(),))
    fleet.carry_out()
    [cause] = fleet.record().causes
    assert (cause.injected, fleet.marked()) == (False, [0])
    charge = fleet.record().charge
    assert charge is not None
    assert not charge.injected
    fleet.report(0, finding())  # the rehearsal ends, the fault does not
    fleet.carry_out()
    assert fleet.marked() == [0]
    assert {item.injected: item.state for item in fleet.incidents()} == {
        True: IncidentState.RESOLVED,
        False: IncidentState.MARKED,
    }


def test_an_injected_fault_keeps_no_mark_of_a_real_one() -> None:
    fleet = Fleet(1, replace(ALLOWED, soak=SoakPeriod(60.0, 600.0, 86_400.0)))
    fleet.report(0, finding(), injected=(finding(),))
    fleet.carry_out()
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    assert {item.injected: item.state for item in fleet.incidents()} == {
        False: IncidentState.RECOVERING,
        True: IncidentState.MARKED,
    }
    fleet.after(61.0)
    fleet.carry_out()
    assert [cause.injected for cause in fleet.record().causes] == [True]
    assert fleet.marked() == [0]
    assert {item.injected: item.state for item in fleet.incidents()} == {
        False: IncidentState.RESOLVED,
        True: IncidentState.MARKED,
    }


def test_an_injected_fault_releases_no_mark_of_a_real_one() -> None:
    fleet = Fleet(1, ALLOWED)
    fleet.report(0, finding("gpu-ecc"))
    fleet.carry_out()
    fleet.report(0, finding("gpu-ecc"), proven=(), injected=(finding("gpu-lost"),))
    fleet.carry_out()
    fleet.report(0, proven=(), injected=(finding("gpu-ecc"),))
    fleet.carry_out()
    fleet.report(0, proven=())
    fleet.carry_out()
    assert [(cause.check, cause.injected) for cause in fleet.record().causes] == [
        ("gpu-ecc", False),
        ("gpu-lost", True),
    ]


def test_a_target_with_a_real_and_an_injected_fault_has_two_incidents() -> None:
    fleet = Fleet(1, ALLOWED)
    fleet.report(0, finding("gpu-ecc"), injected=(finding("gpu-lost"),))
    fleet.carry_out()
    assert {item.injected: item.cause for item in fleet.incidents()} == {False: "gpu-ecc", True: "gpu-lost"}


def test_an_injected_fault_makes_no_later_soak_period_longer() -> None:
    fleet = Fleet(1, replace(ALLOWED, soak=SoakPeriod(60.0, 600.0, 86_400.0)))
    for _ in range(3):
        inject(fleet, "gpu-lost")
        fleet.carry_out()
        fleet.report(0)
        fleet.carry_out()
        fleet.after(61.0)
        fleet.carry_out()
        assert fleet.marked() == []
    assert fleet.record().past_charges == ()


def test_a_real_fault_gets_the_budget_before_an_injected_one() -> None:
    budget = replace(AT_ONCE.budget, fleet=0.01)
    fleet = Fleet(8, replace(ALLOWED, budget=budget))
    inject(fleet, "gpu-lost", number=1)
    fleet.report(2, finding("gpu-ecc", health=Health.FATAL, age=1.0))
    fleet.carry_out()
    assert fleet.marked() == [2]
    assert [item.state for item in fleet.incidents(1)] == [IncidentState.WITHHELD]


def test_an_injected_fault_confirms_no_real_one() -> None:
    budget = replace(AT_ONCE.budget, fleet=0.01)
    fleet = Fleet(8, replace(ALLOWED, budget=budget))
    fleet.report(1, finding("gpu-ecc", age=1.0), injected=(finding("gpu-lost"),))
    fleet.report(2, finding("gpu-ecc", age=2.0))
    fleet.carry_out()
    assert fleet.marked() == [2]  # the older of two faults with as many confirmations


@pytest.mark.parametrize("is_injected", [False, True])
def test_only_a_real_fault_counts_against_its_component(is_injected: bool) -> None:
    fleet = Fleet(40, ALLOWED)
    for number in range(40):
        fleet.report(
            number, inventory=Inventory(components={GPU: ReportedComponent(f"GPU-{number}", "H100")})
        )
    inventory = fleet.reports["uid-0"].inventory
    for _ in range(8):
        fault = (finding(age=0.0, component="GPU-0"),)
        real, injected = ((), fault) if is_injected else (fault, ())
        fleet.report(0, *real, proven=(), inventory=inventory, injected=injected)
        fleet.after(700.0)
        fleet.report(0, inventory=inventory)
        fleet.after(700.0)
    offenders = fleet.planner.component_faults.repeat_offenders(fleet.now)
    assert [offender.part for offender in offenders] == ([] if is_injected else ["GPU-0"])


def test_a_restarted_aggregator_keeps_the_mark_and_releases_it() -> None:
    fleet = Fleet(2, ALLOWED)
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    fleet.restart()
    fleet.carry_out()
    assert fleet.marked() == [0]
    assert [item.injected for item in fleet.incidents()] == [True]
    fleet.report(0)
    fleet.carry_out()
    assert fleet.marked() == []


def test_the_jobs_of_a_node_are_not_read_for_an_injected_fault() -> None:
    fleet = Fleet(1, ALLOWED)
    inject(fleet, "gpu-lost")
    fleet.carry_out()
    assert fleet.planner.tracker.decisions
    assert fleet.planner.job_nodes(fleet.now) == {}


def test_a_real_fault_that_joins_an_injected_mark_has_the_charge() -> None:
    fleet = Fleet(3, ALLOWED)
    inject(fleet, "gpu-ecc")
    fleet.carry_out()
    fleet.after(5.0)
    fleet.report(0, finding("gpu-lost"), injected=(finding("gpu-ecc", age=5.0),))
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    assert fleet.marked() == []
    assert [(past.check, past.occurrences) for past in fleet.record().past_charges] == [("gpu-lost", 1)]
