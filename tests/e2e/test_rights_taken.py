"""Each right of the aggregator is taken away in turn: what it reports to a receiver and in its API is what is so."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import define_incidents
from tests.e2e import scene
from tests.e2e.devices import device_taints, published_devices
from tests.e2e.fleet import Fleet
from tests.webhooks import WebhookReceiver

pytestmark = pytest.mark.slow

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeincidents.nodeguard.dev"
ROLE = f"{RBAC}/clusterroles/nodeguard-aggregator"
OWN_ROLE = f"{RBAC}/namespaces/nodeguard/roles/nodeguard-aggregator"
# Roles other than the ClusterRole, by resource.
ROLES = {
    "events": f"{RBAC}/namespaces/default/roles/nodeguard-events",
    "leases": OWN_ROLE,
    "configmaps": OWN_ROLE,
}
NODE = "gpu-1"
COMMAND = (sys.executable, "-m", "nodeguard.cli.main")

# Verb and resource, and whether the mark is on the Node without this right. The incident exists after the first.
RIGHTS = (
    ("create", "nodeincidents", True),
    ("patch", "nodes", False),
    ("patch", "nodes/status", True),
    ("patch", "nodeincidents/status", True),
    ("create", "events", True),
)

# Longer than the time after which a write that is not observed is reported, and a second plan.
_REPORTED = 8.0


@contextmanager
def without_right(cluster: Cluster, verb: str, resource: str) -> Iterator[None]:
    """Take one right away from the aggregator."""
    role = ROLES.get(resource, ROLE)
    rules = cluster.api.get(role)["rules"]
    remaining = []
    for rule in rules:
        others = [item for item in rule.get("resources", ()) if item != resource]
        if "resources" not in rule:
            remaining.append(rule)
        elif others != rule["resources"]:
            verbs = [item for item in rule["verbs"] if item != verb]
            remaining += [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
        remaining += [{**rule, "resources": others}] if others else []
    assert remaining != rules
    cluster.api.patch(role, {"rules": remaining})
    try:
        yield
    finally:
        cluster.api.patch(role, {"rules": rules})


def test_what_is_reported_without_a_right_is_so(controlplane: Cluster, tmp_path: Path) -> None:
    receiver = WebhookReceiver()
    settings = tmp_path / "notifications.yaml"
    settings.write_text(f"webhooks:\n- {{name: oncall, url: '{receiver.url}'}}\n")
    with (
        receiver.serving(),
        scene.running_fleet(
            controlplane, scene.ENFORCED, NODE, "gpu-2", options=(f"--notifications={settings}",)
        ) as fleet,
    ):
        for verb, resource, is_marked in RIGHTS:
            with without_right(controlplane, verb, resource):
                check_beginning(controlplane, fleet, receiver, is_marked=is_marked)
                # An Event that occurs again needs another right.
                assert refused_rights(fleet) == [f"{verb} {resource}"] or resource == "events"
            agent = fleet.agents[NODE]
            agent.until(lambda: scene.is_marked(controlplane, NODE))
            agent.until(lambda: reported_state(fleet) == "Marked")
            with without_right(controlplane, verb, resource):
                check_end(controlplane, fleet, receiver, is_released=is_marked)
            agent.until(lambda: scene.is_unmarked(controlplane, NODE))
            agent.until(lambda: reported_state(fleet) in {"", "Resolved"})
            agent.until(lambda: receiver.bodies[-1]["change"] == "resolved")
            agent.until(lambda: refused_rights(fleet) == [])


def test_the_lack_of_what_is_no_right_on_nodes_is_reported(controlplane: Cluster) -> None:
    with scene.running_fleet(controlplane, scene.ENFORCED, NODE, "gpu-2") as fleet:
        agent = fleet.agents[NODE]
        for check in (check_without_lease, check_without_decisions, check_without_definition):
            check(controlplane, fleet)
            scene.log_driver_load(agent)
            agent.until(lambda: scene.is_unmarked(controlplane, NODE))
            agent.until(lambda: reported_state(fleet) in {"", "Resolved"})
            agent.until(lambda: refused_rights(fleet) == [])


def check_without_lease(cluster: Cluster, fleet: Fleet) -> None:
    """Nothing is marked without the right to renew the lease, and the obstacle is reported."""
    agent = fleet.agents[NODE]
    with without_right(cluster, "patch", "leases"):
        agent.until(lambda: obstacle(fleet).get("kind") == "api-refuses")
        assert "leases" in obstacle(fleet)["reason"]
        agent.until(lambda: fleet.aggregators[0].metric("nodeguard_aggregator_active") == 0)
        scene.inject_gpu_fault(agent)
        agent.until(lambda: reported_state(fleet))
        time.sleep(_REPORTED)
        assert scene.is_unmarked(cluster, NODE)
        assert reported_state(fleet) != "Marked"
    agent.until(lambda: scene.is_marked(cluster, NODE))
    agent.until(lambda: reported_state(fleet) == "Marked")
    assert obstacle(fleet).get("kind") != "api-refuses"


def check_without_decisions(cluster: Cluster, fleet: Fleet) -> None:
    """A pause is refused without the right to write the ConfigMap of decisions."""
    [aggregator] = fleet.aggregators
    socket = ("--socket", str(aggregator.socket))
    pause, resume = [*COMMAND, "pause", "--reason", "a bad driver", *socket], [*COMMAND, "resume", *socket]
    # The first decision creates the ConfigMap.
    for command in (pause, resume):
        subprocess.run(command, capture_output=True, check=True)
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_paused") == 0)
    with without_right(cluster, "patch", "configmaps"):
        # The API server learns of the change through a watch of its own.
        aggregator.until(lambda: not may_patch_decisions(cluster))
        refused = subprocess.run(pause, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (3, "")
        assert 'cannot patch resource "configmaps"' in " ".join(refused.stderr.split())
        assert aggregator.metric("nodeguard_aggregator_paused") == 0
        scene.inject_gpu_fault(fleet.agents[NODE])
        fleet.agents[NODE].until(lambda: scene.is_marked(cluster, NODE))
    subprocess.run(pause, capture_output=True, check=True)
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_paused") == 1)
    subprocess.run(resume, capture_output=True, check=True)


def check_without_definition(cluster: Cluster, fleet: Fleet) -> None:
    """A deleted definition of incidents is reported until it is there again, and marks are set without it."""
    agent = fleet.agents[NODE]
    cluster.api.delete(DEFINITION)
    agent.until(lambda: not cluster.has(scene.INCIDENTS))
    scene.inject_gpu_fault(agent)
    agent.until(lambda: scene.is_marked(cluster, NODE))
    agent.until(lambda: refused_rights(fleet) == ["create nodeincidents"])
    define_incidents(cluster)
    agent.until(lambda: reported_state(fleet) == "Marked")
    agent.until(lambda: scene.incident_state(cluster, NODE) == "Marked")


def may_patch_decisions(cluster: Cluster) -> bool:
    attributes = {
        "verb": "patch",
        "resource": "configmaps",
        "namespace": "nodeguard",
        "name": "nodeguard-decisions",
    }
    user = "system:serviceaccount:nodeguard:nodeguard-aggregator"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = cluster.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_without_device_taint_rules_no_device_is_reported_as_marked(controlplane: Cluster) -> None:
    policy = scene.ENFORCED.replace("fleet: 100%, pool: 100%", "fleet: 20%, pool: 20%")
    with (
        published_devices(controlplane, NODE),
        scene.running_fleet(controlplane, policy, NODE, gpus=0) as fleet,
    ):
        agent = fleet.agents[NODE]
        with without_right(controlplane, "create", "devicetaintrules"):
            scene.inject_gpu_fault(agent)
            agent.until(lambda: reported_state(fleet))
            time.sleep(_REPORTED)
            assert device_taints(controlplane) == []
            assert reported_state(fleet) == "Withheld"
        agent.until(lambda: device_taints(controlplane))
        agent.until(lambda: reported_state(fleet) == "Marked")


def obstacle(fleet: Fleet) -> Any:
    """Return why nothing is written, as the operators' API reports it; empty for nothing."""
    [aggregator] = fleet.aggregators
    return aggregator.query("/v1/status").get("obstacle") or {}


def check_beginning(cluster: Cluster, fleet: Fleet, receiver: WebhookReceiver, *, is_marked: bool) -> None:
    """Compare what is reported of a new fault with the Node."""
    first = len(receiver.bodies)
    agent = fleet.agents[NODE]
    scene.inject_gpu_fault(agent)
    agent.until(lambda: receiver.bodies[first:])
    time.sleep(_REPORTED)
    assert scene.is_marked(cluster, NODE) == is_marked
    reported = [body["state"] for body in receiver.bodies[first:]]
    if is_marked:
        assert (reported[-1], reported_state(fleet)) == ("Marked", "Marked")
    else:
        assert "Marked" not in reported
        assert reported_state(fleet) == "Withheld"
        assert "refused" in receiver.bodies[-1]["text"]


def check_end(cluster: Cluster, fleet: Fleet, receiver: WebhookReceiver, *, is_released: bool) -> None:
    """Compare what is reported of the end of a fault with the Node."""
    first = len(receiver.bodies)
    scene.log_driver_load(fleet.agents[NODE])
    time.sleep(_REPORTED)
    assert scene.is_unmarked(cluster, NODE) == is_released
    changes = [body["change"] for body in receiver.bodies[first:]]
    if is_released:
        fleet.agents[NODE].until(lambda: receiver.bodies[-1]["change"] == "resolved")
    else:
        assert "resolved" not in changes
        assert reported_state(fleet) == "Recovering"


def refused_rights(fleet: Fleet) -> list[str]:
    """Return the rights that are missing, as the operators' API and the metrics report them."""
    [aggregator] = fleet.aggregators
    response: Any = aggregator.query("/v1/status")
    refused = response["refused_requests"]
    for item in refused:
        labels = f'resource="{item["resource"]}",verb="{item["verb"]}"'
        is_counted = aggregator.metric(f"nodeguard_aggregator_api_requests_refused{{{labels}}}") == 1
        # The right may be there again since the status was read.
        later: Any = aggregator.query("/v1/status")
        still = {(other["verb"], other["resource"]) for other in later["refused_requests"]}
        assert is_counted or (item["verb"], item["resource"]) not in still
    return [f"{item['verb']} {item['resource']}" for item in refused]


def reported_state(fleet: Fleet) -> str:
    """Return the state of the open incident of the Node in the operators' API; empty for none."""
    [aggregator] = fleet.aggregators
    response: Any = aggregator.query("/v1/incidents")
    states = [item["state"] for item in response["incidents"] if item["node"] == NODE]
    return states[0] if states else ""
