"""A release of the chart on real nodes: upgrades, rollbacks and the uninstall, while nodes are marked and held.

The tests run in order: each continues with the release that the test before it left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.daemonset.helm import EARLIER, names_jobs
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE
from tests.e2e import scene
from tests.e2e.pod_fleet import CHECKED, IMAGES, PodFleet, container_status
from tests.e2e.watcher import Watcher
from tests.images.store import TAG, name
from tests.kubelet.site import Site

pytestmark = pytest.mark.slow

MARKED, HELD = "node-1", "node-2"
HOLD = {"nodeguard.dev/hold": "ada debugs it"}

# Another name of the same images, so that an upgrade replaces all pods, as one to a new version does.
EARLIER_TAG = "earlier"

# The aggregators avoid marked nodes, and a rollout needs as many nodes as replicas: here one of two is marked.
VALUES: dict[str, Any] = {
    **CHECKED,
    "aggregator": {"tolerations": [{"key": "nodeguard.dev/quarantine", "operator": "Exists"}]},
}
EARLIER_VALUES = {**VALUES, "image": {**IMAGES, "tag": EARLIER_TAG}}

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeincidents.nodeguard.dev"


@pytest.fixture(scope="module")
def begin(shared_site: Site) -> int:
    """Return the length of the audit log before these tests: aggregators of others lost their rights as they ended."""
    return shared_site.audit.size()


@pytest.fixture(scope="module")
def deployed(shared_site: Site, begin: int) -> Iterator[PodFleet]:
    """The earlier chart, with a node that is marked, one that is held, and an incident that is acknowledged."""
    fleet = PodFleet(shared_site)
    try:
        with shared_site.network.entered():
            deploy(fleet)
        yield fleet
    finally:
        with shared_site.network.entered():
            for node in shared_site.nodes.values():
                fleet.report_burn_in(node, "ok")
                shared_site.cluster.api.patch(node.path, {"metadata": {"annotations": dict.fromkeys(HOLD)}})


def deploy(fleet: PodFleet) -> None:
    cluster, nodes = fleet.site.cluster, fleet.site.nodes
    for node in nodes.values():
        for image in (AGENT, AGGREGATOR):
            node.tag_image(name(image), f"docker.io/library/{image}:{EARLIER_TAG}")
    fleet.install(EARLIER_VALUES, EARLIER)
    fleet.settle()
    cluster.api.patch(nodes[HELD].path, {"metadata": {"annotations": HOLD}})
    for node in nodes.values():
        fleet.report_burn_in(node, "fatal")
    fleet.until(lambda: scene.has_incident_state(cluster, MARKED, "Marked"))
    fleet.until(lambda: scene.has_incident_state(cluster, HELD, "Withheld"))
    incident = incident_of(fleet, MARKED)["metadata"]["name"]
    cluster.api.patch(f"{scene.INCIDENTS}/{incident}", {"spec": {"acknowledged": "ada"}})


@pytest.fixture
def fleet(deployed: PodFleet, site: Site) -> PodFleet:
    return deployed


def incident_of(fleet: PodFleet, node: str) -> Any:
    [incident] = scene.incidents(fleet.site.cluster, node)
    return incident


def decisions(fleet: PodFleet) -> dict[str, Any]:
    """Return what an operator relies on: marks, hold, incidents and policy."""
    cluster = fleet.site.cluster
    policy = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeguard-policy")
    incidents = {node: incident_of(fleet, node) for node in fleet.site.nodes}
    return {
        "taints": {node: scene.taints(cluster, node) for node in fleet.site.nodes},
        "condition": {key: scene.condition(cluster, MARKED)[key] for key in ("status", "lastTransitionTime")},
        "hold": scene.get_node(cluster, HELD)["metadata"]["annotations"].items() >= HOLD.items(),
        "incidents": {
            node: (incident["metadata"]["uid"], incident["spec"], incident["status"]["state"])
            for node, incident in incidents.items()
        },
        "policy": yaml.safe_load(policy["data"]["policy.yaml"]),
    }


@contextmanager
def nothing_changes(fleet: PodFleet) -> Iterator[None]:
    """Check that decisions are the same after the block, and that no mark changed meanwhile."""
    before = decisions(fleet)
    with Watcher(fleet.site.cluster) as watcher:
        yield
        # A new leader reads the hold after it has become active.
        fleet.until(fleet.is_active)
        fleet.until(lambda: decisions(fleet)["incidents"] == before["incidents"])
        states = list(watcher.states)
    assert decisions(fleet) == before
    assert {(state.node, state.marks) for state in states} == {
        (MARKED, ("nodeguard.dev/quarantine=site",)),
        (HELD, ()),
    }


@contextmanager
def replaced_one_by_one(fleet: PodFleet) -> Iterator[None]:
    """Wait after the block until all pods are replaced, and check how many were ready meanwhile."""
    workloads = (AGENT, AGGREGATOR)
    before = {pod["metadata"]["uid"] for workload in workloads for pod in fleet.living(workload)}
    ready = {workload: [len(fleet.site.nodes)] for workload in workloads}
    yield

    def is_complete() -> bool:
        for workload in workloads:
            ready[workload].append(fleet.count_ready(workload))
        return fleet.is_rolled_out()

    fleet.until(is_complete)
    assert min(ready[AGENT]) >= len(fleet.site.nodes) - 1
    assert (min(ready[AGGREGATOR]), max(ready[AGGREGATOR]) <= 3) == (2, True)
    after = {pod["metadata"]["uid"] for workload in workloads for pod in fleet.living(workload)}
    assert before.isdisjoint(after)
    fleet.until(lambda: fleet.reporting() == set(fleet.site.nodes))


def tags(fleet: PodFleet) -> set[str]:
    """Return the tags of the images of all pods."""
    pods = [pod for workload in (AGENT, AGGREGATOR) for pod in fleet.living(workload)]
    return {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods}


def test_an_upgrade_from_an_earlier_chart_keeps_marks_holds_incidents_and_policy(fleet: PodFleet) -> None:
    assert tags(fleet) == {EARLIER_TAG}
    assert not names_jobs(fleet.site.cluster.api.get(DEFINITION))
    with nothing_changes(fleet), replaced_one_by_one(fleet):
        fleet.upgrade(VALUES)
    assert tags(fleet) == {TAG}
    assert names_jobs(fleet.site.cluster.api.get(DEFINITION))


def test_an_upgrade_that_does_not_start_replaces_at_most_one_agent(fleet: PodFleet) -> None:
    leader = fleet.leader()
    before = {pod["metadata"]["name"] for pod in (*fleet.living(AGENT), *fleet.living(AGGREGATOR))}
    # No such image, and an image without the libraries of the aggregator.
    broken = {
        "agent": {"image": {"repository": "nodeguard-missing"}},
        "aggregator": {**VALUES["aggregator"], "image": {"repository": AGENT}},
    }

    def failures() -> dict[str, str]:
        """Return the reason of each container that does not start, by the name of the image."""
        statuses = [
            container_status(pod)
            for workload in (AGENT, AGGREGATOR)
            for pod in fleet.living(workload)
            if pod["metadata"]["name"] not in before and "containerStatuses" in pod["status"]
        ]
        waiting = [(status["image"], status["state"].get("waiting")) for status in statuses]
        return {
            image.rpartition("/")[2].partition(":")[0]: state["reason"] for image, state in waiting if state
        }

    with nothing_changes(fleet):
        fleet.upgrade({**VALUES, **broken})
        fleet.until(
            lambda: (
                "BackOff" in failures().get(AGENT, "") and "Pull" in failures().get("nodeguard-missing", "")
            )
        )
        left = {pod["metadata"]["name"] for workload in (AGENT, AGGREGATOR) for pod in fleet.living(workload)}
        # Both aggregators, and the agent of one node, run and are ready.
        assert len(before - left) == 1
        assert fleet.count_ready(AGGREGATOR) == len(fleet.site.nodes)
        assert fleet.count_ready(AGENT) == len(fleet.site.nodes) - 1
        assert fleet.leader() == leader
        assert fleet.is_active()
        fleet.rollback(2)
        fleet.until(fleet.is_rolled_out)
        fleet.until(lambda: fleet.reporting() == set(fleet.site.nodes))


def test_a_rollback_to_the_earlier_chart_keeps_them_too(fleet: PodFleet) -> None:
    with nothing_changes(fleet), replaced_one_by_one(fleet):
        fleet.rollback(1)
    assert tags(fleet) == {EARLIER_TAG}
    # The hold was respected by each version, and nothing else kept the node free of marks.
    fleet.site.kubectl("annotate", "node", HELD, *(f"{key}-" for key in HOLD))
    fleet.until(lambda: scene.is_marked(fleet.site.cluster, HELD))


def test_uninstall_leaves_no_mark_and_no_pod(fleet: PodFleet, begin: int) -> None:
    cluster = fleet.site.cluster
    audit = fleet.site.audit
    # The rights of both charts suffice; those of the earlier chart not for jobs and actions, which came later.
    assert {"patch nodes", "patch nodeincidents/status", "patch leases"} <= audit.requests(begin)
    assert {request.partition(":")[0] for request in audit.forbidden(begin)} <= {
        "list pods",
        "list nodeactions",
    }
    incidents = {node: incident_of(fleet, node)["metadata"]["uid"] for node in fleet.site.nodes}
    fleet.uninstall_earlier()
    assert {node: scene.nodeguard_fields(cluster, node) for node in fleet.site.nodes} == {
        MARKED: [],
        HELD: [],
    }
    assert fleet.helm("list", "--short") == ""
    assert {node: incident_of(fleet, node)["metadata"]["uid"] for node in fleet.site.nodes} == incidents
