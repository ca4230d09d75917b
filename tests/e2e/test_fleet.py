"""Agents as their pods run them, on a real control plane; receivers stand in for the aggregators."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from nodeguard.agent.config import config
from tests.agent.reporting.receiver import Receiver, receiving
from tests.controlplane.api import Api
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import clear
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, token
from tests.e2e.fleet import HOST, Agent, Fleet, fleet

FAULT = "3,4711,1000010000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def installed(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear(shared_cluster.api)
    with fleet(shared_cluster) as made:
        yield made


@pytest.fixture
def scene(installed: Fleet) -> Iterator[Fleet]:
    """The same fleet for all tests; the agents of one are silent in the next."""
    yield installed
    for agent in installed.agents.values():
        agent.kill()


@contextmanager
def hearing(scene: Fleet, number: str) -> Iterator[Receiver]:
    """A receiver behind the Service's name, whose certificate the cluster's own CA has signed."""
    pair = scene.cluster.authority.issue(f"receiver-{number}", HOST)
    with receiving(tls=True, at=(number, scene.port), pair=pair) as receiver:
        scene.name(number)
        try:
            yield receiver
        finally:
            scene.forget(number)


def claims(agent: Agent) -> dict[str, Any]:
    told = (agent.directory / "token").read_text().split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)))
    return found


def checks(receiver: Receiver, node: str) -> set[str]:
    """What the latest report of a Node's agent tells of."""
    of_node = [one for one in receiver.applied if one.node == node]
    return {one.check for one in of_node[-1].findings} if of_node else set()


def test_every_agent_tells_every_replica_and_follows_them(scene: Fleet) -> None:
    agents = [scene.join(name) for name in ("node-1", "node-2")]
    with ExitStack() as stack, ExitStack() as short:
        first = stack.enter_context(hearing(scene, "127.0.0.1"))
        second = short.enter_context(hearing(scene, "127.0.0.2"))
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.until(lambda: {"node-1", "node-2"} == {one.node for one in first.applied})
            agent.until(lambda: {"node-1", "node-2"} == {one.node for one in second.applied})

        began = time.monotonic()
        agents[0].kernel_says(FAULT)
        agents[0].until(lambda: "gpu-lost" in checks(first, "node-1") & checks(second, "node-1"))
        assert time.monotonic() - began < 5.0
        assert not checks(first, "node-2")

        second.fault = lambda: "lose request"
        short.close()
        third = stack.enter_context(hearing(scene, "127.0.0.3"))
        agents[1].until(lambda: {"node-1", "node-2"} == {one.node for one in third.applied})
        assert "gpu-lost" in checks(third, "node-1")
        assert {agent.end() for agent in agents} == {0}
        for receiver in (first, third):
            assert {one.node for one in receiver.applied if one.leaving} == {"node-1", "node-2"}


def test_an_agent_shows_a_token_that_names_its_node(scene: Fleet) -> None:
    agent = scene.join("node-3")
    with hearing(scene, "127.0.0.1") as receiver:
        agent.start()
        agent.until(lambda: receiver.applied)
        shown = receiver.tokens[-1]
        agent.renew()
        renewed = (agent.directory / "token").read_text()
        agent.kernel_says(FAULT)
        agent.until(lambda: receiver.tokens[-1] == f"Bearer {renewed}")
    said = claims(agent)
    assert shown is not None
    assert said["aud"] == ["nodeguard"]
    assert said["kubernetes.io"]["node"]["name"] == "node-3"
    assert said["kubernetes.io"]["pod"]["name"] == agent.pod
    assert said["sub"] == f"system:serviceaccount:{NAMESPACE}:{AGENT}"

    # The aggregator's account may ask the API server who that is; the agent's may not ask anything.
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": shown.removeprefix("Bearer "), "audiences": ["nodeguard"]},
    }
    cluster = scene.cluster
    as_aggregator = Api(int(cluster.url.rpartition(":")[2]), cluster.ca, token(cluster, AGGREGATOR))
    status = as_aggregator.post("/apis/authentication.k8s.io/v1/tokenreviews", asked)["status"]
    assert status["authenticated"]
    assert status["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["node-3"]


def test_an_agent_that_is_killed_goes_on_where_it_was(scene: Fleet) -> None:
    agent = scene.join("node-4")
    agent.start()
    agent.ready()
    agent.kernel_says(FAULT)
    agent.until(lambda: 'check="gpu-lost"' in agent.page("/metrics"))
    agent.until((agent.directory / "state" / "memory").exists)
    agent.kill()
    agent.start()
    with hearing(scene, "127.0.0.1") as receiver:
        agent.until(lambda: "gpu-lost" in checks(receiver, "node-4"))


def test_aggregators_have_pods_of_the_deployment_and_what_the_manifest_gives_them(scene: Fleet) -> None:
    one, other = scene.aggregate()
    assert one.pod != other.pod
    assert one.pod.startswith(f"{AGGREGATOR}-")
    assert (one.number, other.number) == ("127.0.0.1", "127.0.0.2")
    for aggregator in (one, other):
        assert str(aggregator.kubeconfig.parent) in str(aggregator.socket)
    assert config(str(scene.join("node-5").config)).aggregator is not None
