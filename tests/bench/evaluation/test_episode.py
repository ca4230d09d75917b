from __future__ import annotations

import pytest

from bench.evaluation.episode import (
    fault_episode,
    normal_days,
    rollout_episode,
    without_diagnosis,
)
from bench.evaluation.rollouts import Rollout, bad_agent
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.policy import default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.simulation import enforce_all
from tests.policies import FAULT_CLASSES

pytestmark = pytest.mark.slow

FLEET = simulated_topology(1600)


@pytest.fixture(scope="module")
def agent() -> SimulatedAgent:
    """An agent with the built-in catalogue, which computes each report once."""
    return SimulatedAgent(*load_catalogue())


@pytest.mark.parametrize("kind", ["leaf dead", "rack power", "row cooling", "two leaves at once"])
def test_a_shared_fault_is_diagnosed_and_no_node_is_quarantined_for_it(
    agent: SimulatedAgent, kind: str
) -> None:
    episode = fault_episode(agent, FLEET, kind, 10_000, enforce_all(default_policy(FAULT_CLASSES)))
    assert episode.detected == episode.expected > 0
    assert (episode.wrong, episode.quarantines, episode.wrongly_suppressed) == (0, 0, 0)
    assert all(15.0 <= at < 3600.0 for at in episode.detection_seconds)
    assert episode == fault_episode(agent, FLEET, kind, 10_000, enforce_all(default_policy(FAULT_CLASSES)))


def test_without_diagnosis_the_nodes_are_quarantined_one_by_one(agent: SimulatedAgent) -> None:
    episode = fault_episode(
        agent, FLEET, "leaf dead", 10_000, without_diagnosis(default_policy(FAULT_CLASSES))
    )
    assert (episode.detected, episode.wrong) == (0, 0)
    assert episode.quarantines > 3


@pytest.mark.parametrize("nodes", [16, 64, 1600])
def test_an_aggregator_without_reports_diagnoses_itself(agent: SimulatedAgent, nodes: int) -> None:
    topology, policy = simulated_topology(nodes), enforce_all(default_policy(FAULT_CLASSES))
    episode = fault_episode(agent, topology, "observer partition", 10_000, policy)
    assert episode.is_suppressed
    assert (episode.expected, episode.wrong, episode.quarantines) == (0, 0, 0)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_bad_check_quarantines_no_more_than_its_budget(agent: SimulatedAgent, share: float) -> None:
    rollout = Rollout("gpu-reset-required", share, 0.0)
    new_agent = bad_agent(*load_catalogue(), rollout.check)
    episode = rollout_episode(
        agent, new_agent, FLEET, rollout, 10_000, enforce_all(default_policy(FAULT_CLASSES))
    )
    assert episode.is_suppressed
    assert episode.max_healthy_quarantined <= 5


@pytest.mark.parametrize("check", ["gpu-reset-required", "port-down", "nic-firmware-dead"])
@pytest.mark.parametrize(("nodes", "share"), [(256, 0.1), (2560, 0.01)])
def test_a_bad_check_that_spreads_for_hours_quarantines_few_nodes(
    agent: SimulatedAgent, check: str, nodes: int, share: float
) -> None:
    rollout = Rollout(check, share, 8 * 3600.0)
    new_agent = bad_agent(*load_catalogue(), check)
    policy = enforce_all(default_policy(FAULT_CLASSES))
    episode = rollout_episode(agent, new_agent, simulated_topology(nodes), rollout, 1, policy)
    assert episode.is_suppressed
    assert episode.max_healthy_quarantined <= 8


def test_normal_hours_have_no_wrong_diagnosis(agent: SimulatedAgent) -> None:
    result = normal_days(agent, FLEET, 0.1, 10_000, enforce_all(default_policy(FAULT_CLASSES)))
    assert (result.days, result.domains, result.nodes) == (0.1, 0, 0)
