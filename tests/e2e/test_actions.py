"""A clear survives both aggregators: they are killed between the clear and the agent's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from nodeguard.cli.main import main
from nodeguard.kube.action_store import actions_path
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import ACTIONS_CRD
from tests.daemonset.manifests import NAMESPACE
from tests.e2e import scene
from tests.e2e.fleet import Agent, Aggregator, Fleet, deployed_fleet
from tests.e2e.scene import ENFORCED

NODE = "gpu-1"
ACTIONS = actions_path(NAMESPACE)

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(controlplane: Cluster) -> Iterator[Fleet]:
    with deployed_fleet(controlplane) as deployed:
        controlplane.api.delete(ACTIONS)
        deployed.policy.write_text(ENFORCED)
        deployed.add_node(NODE)
        for aggregator in deployed.add_aggregators():
            aggregator.start()
        deployed.distribute_ca()
        deployed.agents[NODE].start()
        deployed.agents[NODE].ready()
        yield deployed


def actions(cluster: Cluster) -> list[tuple[str, str]]:
    """Return action and state of each NodeAction."""
    items: list[Any] = cluster.api.get(ACTIONS)["items"]
    return [(item["spec"]["action"], item.get("status", {}).get("state", "Reserved")) for item in items]


def clear(cluster: Cluster, by: str) -> str:
    """Clear the only incident of the node; returns its name."""
    [incident] = scene.incidents(cluster, NODE)
    name: str = incident["metadata"]["name"]
    patch = json.dumps({"spec": {"clear": {"by": by, "at": "2027-01-15T08:00:00Z"}}})
    cluster.kubectl("patch", "nodeincident", name, "--type=merge", "-p", patch)
    return name


def carried_out(fleet: Fleet, agent: Agent) -> int:
    """Return how many instructions the agent has carried out in all tests."""
    log = fleet.cluster.processes.log(agent.name).read_text()
    return log.count("instruction carried out")


def has_result(aggregator: Aggregator, incident: str, result: str) -> bool:
    """Return whether an aggregator reports a result of the clear."""
    return bool(aggregator.query(f"/v1/incidents/{incident}").get("clear_result") == result)


def in_history(aggregator: Aggregator) -> list[str]:
    """Return the actions of the node in the history of an aggregator."""
    entries: list[Any] = aggregator.query(f"/v1/history?name={NODE}&since=3600")["entries"]
    return [entry["text"] for entry in entries if entry["change"] == "action"]


def has_ended(aggregator: Aggregator) -> bool:
    return len(in_history(aggregator)) == 2


def test_a_clear_survives_both_aggregators_and_is_carried_out_once(
    fleet: Fleet, controlplane: Cluster
) -> None:
    agent, both = fleet.agents[NODE], fleet.aggregators
    before = carried_out(fleet, agent)
    scene.inject_gpu_fault(agent)
    agent.until(lambda: scene.has_incident_state(controlplane, NODE, "Marked"))
    agent.suspend()
    incident = clear(controlplane, "ada")
    both[0].until(lambda: actions(controlplane) == [("Clear", "Running")])
    for aggregator in both:
        aggregator.kill()
    for aggregator in both:
        aggregator.start()
    for aggregator in both:
        aggregator.until(partial(has_result, aggregator, incident, "waiting"))
    agent.resume()
    both[0].until(lambda: actions(controlplane) == [("Clear", "Succeeded")])
    agent.until(lambda: scene.is_unmarked(controlplane, NODE))
    for aggregator in both:
        aggregator.until(partial(has_result, aggregator, incident, "done"))
    for aggregator in both:
        aggregator.kill()
    for aggregator in both:
        aggregator.start()
    for aggregator in both:
        aggregator.until(partial(has_result, aggregator, incident, "done"))
    assert carried_out(fleet, agent) - before == 1
    assert actions(controlplane) == [("Clear", "Succeeded")]


def test_a_detach_of_gpus_survives_both_aggregators_and_is_carried_out_once(
    fleet: Fleet, controlplane: Cluster
) -> None:
    agent, both = fleet.agents[NODE], fleet.aggregators
    before = carried_out(fleet, agent)
    both[0].until(lambda: both[0].query("/v1/nodes")["nodes"])
    agent.suspend()
    command = ["gpus", "detach", "--duration", "5m", "--gpu", "0", "--node", NODE, "--by", "ada"]
    assert main([*command, "--socket", str(both[1].socket)]) == 0
    both[0].until(lambda: actions(controlplane) == [("DetachGpus", "Running")])
    for aggregator in both:
        aggregator.kill()
    for aggregator in both:
        aggregator.start()
    agent.resume()
    both[0].until(lambda: actions(controlplane) == [("DetachGpus", "Succeeded")])
    assert carried_out(fleet, agent) - before == 1
    [action] = controlplane.api.get(ACTIONS)["items"]
    assert action["spec"]["request"].startswith("ada at ")
    for aggregator in both:
        aggregator.until(partial(has_ended, aggregator))
        begin, end = in_history(aggregator)
        assert begin.startswith("the agent is asked to detach from GPU 0 for 5 min, by ada at 20")
        assert end.startswith("the request to detach from GPU 0 for 5 min has succeeded")


def test_without_the_definition_a_clear_is_refused_and_marks_go_on(
    fleet: Fleet, controlplane: Cluster
) -> None:
    agent, both = fleet.agents[NODE], fleet.aggregators
    before = carried_out(fleet, agent)
    controlplane.kubectl("delete", "customresourcedefinition", "nodeactions.nodeguard.dev")
    for aggregator in both:
        aggregator.kill()
    for aggregator in both:
        aggregator.start()
    scene.inject_gpu_fault(agent)
    agent.until(lambda: scene.has_incident_state(controlplane, NODE, "Marked"))
    incident = clear(controlplane, "ada")
    both[0].until(partial(has_result, both[0], incident, "waiting"))
    assert scene.is_marked(controlplane, NODE)
    # The clear is carried out once the cluster can store it.
    controlplane.kubectl("apply", "-f", str(ACTIONS_CRD))
    agent.until(lambda: scene.is_unmarked(controlplane, NODE))
    assert carried_out(fleet, agent) - before == 1
