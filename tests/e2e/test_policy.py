"""What strangers say to an aggregator, and a policy that changes under it."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from nodeguard.aggregator.ingest.endpoint import MESSAGES_PATH
from tests.aggregator.ingest.scene import heartbeat
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import clear
from tests.daemonset.manifests import AGENT, NAMESPACE, token
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.scene import at_work
from tests.waiting import PATIENCE

WRONG = "defaultMode: enforce\ngracePeriod: {quarantine: soon}\n"


@pytest.fixture(scope="module")
def made(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear(shared_cluster.api)
    with at_work(shared_cluster, scene.ENFORCED, "gpu-1", "gpu-2") as fleet:
        yield fleet


def log(made: Fleet) -> str:
    [aggregator] = made.aggregators
    return made.cluster.kept.log(aggregator.name).read_text()


def test_strangers_change_nothing_and_no_token_is_told(made: Fleet) -> None:
    cluster, [aggregator] = made.cluster, made.aggregators
    agent = made.agents["gpu-1"]
    good = agent.token.read_text()
    others = token(cluster, AGENT, agent.pod)  # for the API server, not for nodeguard
    unbound = token(cluster, AGENT, None, "nodeguard")
    forged = good[:-8] + ("A" * 8 if not good.endswith("A" * 8) else "B" * 8)
    before = scene.node(cluster, "gpu-2")

    # With the node's own token, but of a boot that is not the one that its agent reports of.
    assert _said(made, good, heartbeat("gpu-1")) == 409
    refused = aggregator.asked("/v1/nodes/gpu-1")["refused_messages"]
    assert (refused["reason"], refused["count"]) == ("other-boot", 1)
    assert _said(made, good, heartbeat("gpu-2")) == 403
    for shown in (others, unbound, forged, "x" * 900, ""):
        assert _said(made, shown, heartbeat("gpu-1")) in {401, 403}
    body = b'{"version":1,"filler":"' + b"x" * (64 << 20)
    assert _said(made, good, body) in {0, 413}
    with _line(made) as slow:
        slow.putrequest("POST", MESSAGES_PATH)
        slow.putheader("Authorization", f"Bearer {good}")
        slow.putheader("Content-Length", "1000")
        slow.endheaders(b"{")
        # Agents are heard beside it, and what it says is never heard.
        scene.fails(agent)
        agent.until(lambda: scene.is_marked(cluster, "gpu-1"))
        scene.driver_is_loaded(agent)
        agent.until(lambda: not scene.is_marked(cluster, "gpu-1"))

    assert aggregator.code() is None
    said = log(made) + cluster.kept.log(agent.name).read_text()
    for secret in (good, others, unbound, forged):
        assert secret not in said
        assert secret.split(".")[2] not in said
    assert scene.node(cluster, "gpu-2") == before


def test_a_wrong_policy_is_told_of_and_left(made: Fleet) -> None:
    cluster, [aggregator] = made.cluster, made.aggregators
    made.policy.write_text(WRONG)
    aggregator.until(
        lambda: "nodeguard_aggregator_policy_last_reload_successful 0" in aggregator.page("/metrics")
    )
    why = f"{made.policy}:2: quarantine: 'soon' does not fit"
    assert why in log(made)

    def said() -> list[Any]:
        asked = f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={aggregator.pod}"
        found = cluster.api.get(asked)["items"]
        return [one for one in found if one["reason"] == "NodeguardPolicyInvalid"]

    [event] = aggregator.until(said)
    assert (event["type"], event["count"]) == ("Warning", 1)
    assert event["message"].startswith(why)
    assert "the previous policy stays in use" in event["message"]
    described = cluster.kubectl("describe", "pod", "-n", NAMESPACE, aggregator.pod)
    assert why in described

    # The last good one goes on.
    scene.fails(made.agents["gpu-1"])
    made.agents["gpu-1"].until(lambda: scene.is_marked(cluster, "gpu-1"))

    made.policy.write_text(scene.ENFORCED.replace("enforce", "observe"))
    aggregator.until(
        lambda: "nodeguard_aggregator_policy_last_reload_successful 1" in aggregator.page("/metrics")
    )
    aggregator.until(lambda: f"{made.policy}: adopted" in log(made))
    scene.fails(made.agents["gpu-2"])
    made.agents["gpu-2"].until(lambda: scene.state(cluster, "gpu-2") == "DryRun")
    assert not scene.is_marked(cluster, "gpu-2")
    # What stands is no new mark: it stays until it is proven to be over.
    assert scene.is_marked(cluster, "gpu-1")


class _Line(http.client.HTTPSConnection):
    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line(made: Fleet) -> _Line:
    trust = ssl.create_default_context(cadata=made.ca.read_text())
    trust.check_hostname = False
    return _Line(made.aggregators[0].number, made.port, context=trust, timeout=PATIENCE)


def _said(made: Fleet, shown: str, body: bytes) -> int:
    """The status of the answer to a message; 0 where the line was cut."""
    with _line(made) as line:
        try:
            line.request("POST", MESSAGES_PATH, body, {"Authorization": f"Bearer {shown}"})
            return line.getresponse().status
        except OSError:
            return 0
