from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.simulation.episode import enforcing, fault_episode, quiet_days, rollout_episode
from bench.simulation.rollouts import Rollout, slipped
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.policy import Mode, Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.random_faults import DEFAULT_RATES
from nodeguard.simulate.simulation import SimulationSettings, simulate

pytestmark = pytest.mark.slow

FLEET = simulated_topology(1600)


@pytest.mark.parametrize("kind", ["leaf dead", "rack power", "row cooling", "two leaves at once"])
def test_a_shared_fault_is_blamed_on_what_is_shared_and_nobody_is_out_for_it(
    agent: SimulatedAgent, kind: str
) -> None:
    one = fault_episode(agent, FLEET, kind, 10_000, enforcing(Policy()))
    assert one.found == one.planted > 0
    assert (one.wrong, one.quarantines, one.wrongly) == (0, 0, 0)
    assert all(15.0 <= at < 3600.0 for at in one.took)
    assert one == fault_episode(agent, FLEET, kind, 10_000, enforcing(Policy()))


def test_without_blame_its_nodes_are_taken_out_one_by_one(agent: SimulatedAgent) -> None:
    one = fault_episode(agent, FLEET, "leaf dead", 10_000, enforcing(Policy(), blames=False))
    assert (one.found, one.wrong) == (0, 0)
    assert one.quarantines > 3


def test_an_observer_that_hears_nobody_doubts_itself(agent: SimulatedAgent) -> None:
    one = fault_episode(agent, FLEET, "observer partition", 10_000, enforcing(Policy()))
    assert one.labelled
    assert (one.planted, one.wrong, one.quarantines) == (0, 0, 0)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_check_that_misfires_takes_out_no_more_than_its_budget(agent: SimulatedAgent, share: float) -> None:
    rollout = Rollout("gpu-reset-required", share, 0.0)
    wrong = slipped(*load_catalogue(), rollout.check)
    one = rollout_episode(agent, wrong, FLEET, rollout, 10_000, enforcing(Policy()))
    assert one.labelled
    assert one.most <= 5


def test_some_hours_as_usual(agent: SimulatedAgent) -> None:
    one = quiet_days(agent, FLEET, 0.1, 10_000, enforcing(Policy()))
    assert one.days == 0.1
    assert one.domains * 0 == one.marked * 0 == 0


def test_a_run_adds_up_and_a_policy_that_observes_marks_nothing(agent: SimulatedAgent) -> None:
    settings = SimulationSettings(nodes=300, days=2.0, seed=3)
    often = replace(DEFAULT_RATES, faults=0.05)
    one = simulate(agent, enforcing(Policy()), settings, rates=often)
    assert one == simulate(agent, enforcing(Policy()), settings, rates=often)
    assert one.quarantines >= one.rightly > 0
    assert one.needed > one.needless >= 0.0
    assert one.gangs.jobs == 3
    none = simulate(agent, Policy(mode=Mode.OBSERVE), settings, rates=often)
    assert (none.quarantines, none.needed, none.needless, none.most) == (0, 0.0, 0.0, 0)
    assert none.incidents == pytest.approx(one.incidents, rel=0.2)


def test_cordon_any_takes_out_what_decoys_show(agent: SimulatedAgent) -> None:
    settings = SimulationSettings(nodes=300, days=3.0, seed=3, baseline="cordon-any")
    one = simulate(agent, Policy(), settings)
    # 1,140 decoys a day in 7,500 nodes, of four hours each, are 2.5% of the fleet's time.
    assert one.needless == pytest.approx(0.026, rel=0.3)
    assert one.quarantines > 100
