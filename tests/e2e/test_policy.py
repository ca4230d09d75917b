"""Unauthenticated and invalid messages to an aggregator, and a policy that changes while it runs."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from nodeguard.aggregator.ingest.endpoint import MESSAGES_PATH
from tests.aggregator.ingest.scene import heartbeat
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import clear_cluster
from tests.daemonset.manifests import AGENT, NAMESPACE, token
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.scene import running_fleet
from tests.waiting import PATIENCE

INVALID = "defaultMode: enforce\ngracePeriod: {quarantine: soon}\n"


@pytest.fixture(scope="module")
def fleet(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear_cluster(shared_cluster)
    with running_fleet(shared_cluster, scene.ENFORCED, "gpu-1", "gpu-2") as running:
        yield running


def log(fleet: Fleet) -> str:
    [aggregator] = fleet.aggregators
    return fleet.cluster.processes.log(aggregator.name).read_text()


def test_unauthenticated_clients_change_nothing_and_no_token_is_logged(fleet: Fleet) -> None:
    cluster, [aggregator] = fleet.cluster, fleet.aggregators
    agent = fleet.agents["gpu-1"]
    good = agent.token.read_text()
    others = token(cluster, AGENT, agent.pod)  # for the API server, not for nodeguard
    unbound = token(cluster, AGENT, None, "nodeguard")
    forged = good[:-8] + ("A" * 8 if not good.endswith("A" * 8) else "B" * 8)
    before = scene.get_node(cluster, "gpu-2")

    # With the node's own token, but of another boot than its agent reports.
    assert _status(fleet, good, heartbeat("gpu-1")) == 409
    refused = aggregator.query("/v1/nodes/gpu-1")["refused_messages"]
    assert (refused["reason"], refused["count"]) == ("other-boot", 1)
    assert _status(fleet, good, heartbeat("gpu-2")) == 403
    for credential in (others, unbound, forged, "x" * 900, ""):
        assert _status(fleet, credential, heartbeat("gpu-1")) in {401, 403}
    body = b'{"version":1,"filler":"' + b"x" * (64 << 20)
    assert _status(fleet, good, body) in {0, 413}
    with _connection(fleet) as slow:
        slow.putrequest("POST", MESSAGES_PATH)
        slow.putheader("Authorization", f"Bearer {good}")
        slow.putheader("Content-Length", "1000")
        slow.endheaders(b"{")
        # The aggregator accepts reports of agents meanwhile.
        scene.inject_gpu_fault(agent)
        agent.until(lambda: scene.is_marked(cluster, "gpu-1"))
        scene.log_driver_load(agent)
        agent.until(lambda: not scene.is_marked(cluster, "gpu-1"))

    assert aggregator.return_code() is None
    logs = log(fleet) + cluster.processes.log(agent.name).read_text()
    for secret in (good, others, unbound, forged):
        assert secret not in logs
        assert secret.split(".")[2] not in logs
    assert scene.get_node(cluster, "gpu-2") == before


def test_an_invalid_policy_is_reported_and_not_adopted(fleet: Fleet) -> None:
    cluster, [aggregator] = fleet.cluster, fleet.aggregators
    fleet.policy.write_text(INVALID)
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_policy_last_reload_successful") == 0)
    problem = f"{fleet.policy}:2: quarantine: 'soon' does not fit"
    aggregator.until(lambda: problem in log(fleet))

    def policy_events() -> list[Any]:
        path = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={aggregator.pod}"
        return [item for item in cluster.api.get(path)["items"] if item["reason"] == "NodeguardPolicyInvalid"]

    [event] = aggregator.until(policy_events)
    assert (event["type"], event["count"]) == ("Warning", 1)
    assert event["message"].startswith(problem)
    assert "the previous policy stays in use" in event["message"]
    described = cluster.kubectl("describe", "pod", "-n", NAMESPACE, aggregator.pod)
    assert problem in described

    # The last valid policy stays in use.
    scene.inject_gpu_fault(fleet.agents["gpu-1"])
    fleet.agents["gpu-1"].until(lambda: scene.is_marked(cluster, "gpu-1"))

    fleet.policy.write_text(scene.ENFORCED.replace("enforce", "observe"))
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_policy_last_reload_successful") == 1)
    # Earlier fleets of this cluster have written to the same log: only this one has this path.
    adopted = rf'"the new policy file is in use".*{re.escape(str(fleet.policy))}'
    aggregator.until(lambda: re.search(adopted, log(fleet)))
    scene.inject_gpu_fault(fleet.agents["gpu-2"])
    aggregator.until(lambda: scene.incident_state(cluster, "gpu-2") == "DryRun")
    assert not scene.is_marked(cluster, "gpu-2")
    # A mark that is set stays until its release.
    assert scene.is_marked(cluster, "gpu-1")


class _Connection(http.client.HTTPSConnection):
    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connection(fleet: Fleet) -> _Connection:
    trust = ssl.create_default_context(cadata=fleet.ca.read_text())
    trust.check_hostname = False
    return _Connection(fleet.aggregators[0].address, fleet.port, context=trust, timeout=PATIENCE)


def _status(fleet: Fleet, credential: str, body: bytes) -> int:
    """Return the status of the response to a message; 0 if the connection was closed."""
    with _connection(fleet) as connection:
        try:
            connection.request("POST", MESSAGES_PATH, body, {"Authorization": f"Bearer {credential}"})
            return connection.getresponse().status
        except OSError:
            return 0
