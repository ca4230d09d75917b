"""Each right of the aggregator is taken away in turn: what it reports to a receiver and in its API is what is so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import Cluster, NewCluster
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.webhooks import WebhookReceiver

pytestmark = pytest.mark.slow

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = f"{RBAC}/clusterroles/nodeguard-aggregator"
EVENTS_ROLE = f"{RBAC}/namespaces/default/roles/nodeguard-events"
NODE = "gpu-1"

# Verb and resource, and whether the mark is on the Node without this right.
RIGHTS = (
    ("patch", "nodes", False),
    ("patch", "nodes/status", True),
    ("create", "nodeincidents", True),
    ("patch", "nodeincidents/status", True),
    ("create", "events", True),
)

# Longer than the time after which a write that is not observed is reported, and a second plan.
_REPORTED = 8.0


@contextmanager
def without_right(cluster: Cluster, verb: str, resource: str) -> Iterator[None]:
    """Take one right away from the aggregator."""
    role = EVENTS_ROLE if resource == "events" else ROLE
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


def test_what_is_reported_without_a_right_is_so(new_cluster: NewCluster, tmp_path: Path) -> None:
    receiver = WebhookReceiver()
    settings = tmp_path / "notifications.yaml"
    settings.write_text(f"webhooks:\n- {{name: oncall, url: '{receiver.url}'}}\n")
    with (
        receiver.serving(),
        new_cluster() as cluster,
        scene.running_fleet(
            cluster, scene.ENFORCED, NODE, "gpu-2", options=(f"--notifications={settings}",)
        ) as fleet,
    ):
        for verb, resource, is_marked in RIGHTS:
            with without_right(cluster, verb, resource):
                check_beginning(cluster, fleet, receiver, is_marked=is_marked)
            agent = fleet.agents[NODE]
            agent.until(lambda: scene.is_marked(cluster, NODE))
            agent.until(lambda: reported_state(fleet) == "Marked")
            with without_right(cluster, verb, resource):
                check_end(cluster, fleet, receiver, is_released=is_marked)
            agent.until(lambda: scene.is_unmarked(cluster, NODE))
            agent.until(lambda: reported_state(fleet) in {"", "Resolved"})
            agent.until(lambda: receiver.bodies[-1]["change"] == "resolved")


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


def reported_state(fleet: Fleet) -> str:
    """Return the state of the open incident of the Node in the operators' API; empty for none."""
    [aggregator] = fleet.aggregators
    response: Any = aggregator.query("/v1/incidents")
    states = [item["state"] for item in response["incidents"] if item["node"] == NODE]
    return states[0] if states else ""
