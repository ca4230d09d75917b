"""Without one of its rights, nodeguard reports of each node what is on its objects, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.devices import RULES, published_devices
from tests.e2e.fleet import Aggregator, Fleet
from tests.e2e.processes import get_page
from tests.e2e.scene import running_fleet
from tests.waiting import PROMPTLY

pytestmark = pytest.mark.slow

# One node is marked as a whole, of the other one GPU is.
WHOLE, SLICED = "whole", "sliced"
NODES = (WHOLE, SLICED)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_ROLE = f"{RBAC}/clusterroles/nodeguard-aggregator"
ROLE = f"{RBAC}/namespaces/nodeguard/roles/nodeguard-aggregator"
EVENTS_ROLE = f"{RBAC}/namespaces/default/roles/nodeguard-events"

# Objects that a right is limited to.
OBJECTS = {"leases": "nodeguard-aggregator", "configmaps": "nodeguard-decisions"}
ACCOUNT = "system:serviceaccount:nodeguard:nodeguard-aggregator"


@dataclass(frozen=True)
class Right:
    """A right of the aggregator. role: path of the role with it. refuses: the nodes that cannot be marked without
    it. stale: the surface that cannot be corrected without it.
    """

    role: str
    group: str
    resource: str
    verb: str
    refuses: tuple[str, ...] = ()
    stale: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


RIGHTS = (
    Right(CLUSTER_ROLE, "", "nodes", "patch", (WHOLE,)),
    Right(CLUSTER_ROLE, "", "nodes/status", "patch"),
    Right(CLUSTER_ROLE, "nodeguard.dev", "nodeincidents", "create", stale="NodeIncident"),
    Right(CLUSTER_ROLE, "nodeguard.dev", "nodeincidents", "patch"),
    Right(CLUSTER_ROLE, "nodeguard.dev", "nodeincidents/status", "patch", stale="NodeIncident"),
    Right(EVENTS_ROLE, "", "events", "create", stale="Event", namespace="default"),
    Right(CLUSTER_ROLE, "resource.k8s.io", "devicetaintrules", "create", (SLICED,)),
    Right(CLUSTER_ROLE, "resource.k8s.io", "devicetaintrules", "delete"),
    Right(ROLE, "coordination.k8s.io", "leases", "patch", NODES, namespace="nodeguard"),
)


def is_allowed(cluster: Cluster, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "namespace": right.namespace,
        "name": OBJECTS.get(resource, ""),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": attributes},
    }
    return bool(
        cluster.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"]
    )


@contextmanager
def without(cluster: Cluster, right: Right) -> Iterator[None]:
    """Take a right away, and give it back."""
    rules = cluster.api.get(right.role)["rules"]
    fewer = []
    for rule in rules:
        named = right.resource in rule.get("resources", ()) and right.group in rule.get("apiGroups", ())
        verbs = [verb for verb in rule["verbs"] if not (named and verb == right.verb)]
        fewer += [{**rule, "verbs": verbs}] if verbs else []
    assert fewer != rules
    cluster.api.patch(right.role, {"rules": fewer})
    try:
        cluster.until(lambda: not is_allowed(cluster, right), "kube-apiserver")
        yield
    finally:
        cluster.api.patch(right.role, {"rules": rules})
        cluster.until(lambda: is_allowed(cluster, right), "kube-apiserver")


def run(aggregator: Aggregator, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of an operator."""
    return subprocess.run(
        [sys.executable, "-m", "nodeguard.cli.main", *arguments, "--socket", str(aggregator.socket)],
        capture_output=True,
        text=True,
        timeout=PROMPTLY,
        check=False,
    )


def marked_objects(cluster: Cluster) -> set[str]:
    """Return the nodes that are marked: the whole one by its taint, the other by the rule of its GPU."""
    sliced = {SLICED} if cluster.api.get(RULES)["items"] else set()
    return sliced | {name for name in NODES if scene.is_marked(cluster, name)}


def marked_by_condition(cluster: Cluster) -> set[str]:
    return {
        name
        for name in NODES
        for item in scene.incidents(cluster, name)
        for condition in item["status"].get("conditions", ())
        if (condition["type"], condition["status"]) == ("Marked", "True")
    }


def has_mark(state: str) -> bool:
    return state.lower() in {"marked", "recovering"}


def claims(cluster: Cluster, aggregator: Aggregator) -> dict[str, set[str]]:
    """Return the nodes that are marked, as each surface reports."""
    nodes = {name: aggregator.query(f"/v1/nodes/{name}") for name in NODES}
    incidents = aggregator.query("/v1/incidents")["incidents"]
    listed = run(aggregator, "get", "incidents").stdout.splitlines()
    described = {name: run(aggregator, "describe", "node", name).stdout.partition("\n")[0] for name in NODES}
    return {
        "describe node": {name for name in NODES if "quarantined" in described[name]},
        "node in the API": {name for name in NODES if any(mark["written"] for mark in nodes[name]["marks"])},
        "findings in the API": {
            name for name in NODES if any(item["state"] == "Marked" for item in nodes[name]["findings"])
        }
        | _recovering(nodes),
        "get nodes": {item["node"] for item in aggregator.query("/v1/nodes")["nodes"] if item["marks"]},
        "get incidents -o json": {item["node"] for item in incidents if has_mark(item["state"])},
        "get incidents": {
            name
            for name in NODES
            if any(name in line and any(map(has_mark, line.split())) for line in listed)
        },
        "page": {
            name
            for name in NODES
            if "quarantined" in get_page(aggregator.page, f"/nodes/{name}").partition("</h1>")[0]
        },
        "NodeIncident": marked_by_condition(cluster),
    }


def _recovering(nodes: dict[str, Any]) -> set[str]:
    """Return the nodes without a finding of which the mark is still there."""
    return {
        name
        for name, node in nodes.items()
        if not node["findings"] and any(mark["written"] for mark in node["marks"])
    }


def numbers(aggregator: Aggregator) -> dict[str, float]:
    """Return how many marks each total has."""
    status = aggregator.query("/v1/status")
    by_state = status["incidents"]
    metric = aggregator.metric
    return {
        "status -o json": sum(count["nodes"] + count["devices"] for count in status["marked"].values()),
        "incidents of status": by_state["Marked"] + by_state["Recovering"],
        "incidents metric": sum(
            metric(f'nodeguard_aggregator_incidents{{state="{state}"}}') for state in ("marked", "recovering")
        ),
        "marks metric": metric('nodeguard_aggregator_marked_nodes{mark="quarantine"}')
        + metric("nodeguard_aggregator_marked_devices"),
    }


def marked_events(cluster: Cluster) -> int:
    """Return how often an Event reported that a node is marked: equal ones are counted in one object."""
    items = cluster.api.get("/api/v1/namespaces/default/events")["items"]
    return sum(item["count"] for item in items if item["reason"] == "NodeguardMarked")


def compare(cluster: Cluster, aggregator: Aggregator, right: Right | None = None) -> None:
    """Wait until nothing is pending, and compare all that is reported with what is on the objects."""

    def differences() -> str:
        marked = marked_objects(cluster)
        reported = claims(cluster, aggregator)
        if right is not None:
            reported.pop(right.stale, None)
        wrong = {surface: names for surface, names in reported.items() if names != marked}
        counts = {name: count for name, count in numbers(aggregator).items() if count != len(marked)}
        return f"{right}: marked are {marked}, but {wrong} {counts}" if wrong or counts else ""

    latest = ""

    def agree() -> bool:
        nonlocal latest
        latest = differences()
        return not latest

    try:
        aggregator.until(agree)
    except AssertionError as error:
        raise AssertionError(f"{latest}\n{error}") from None


def fails(fleet: Fleet) -> None:
    for agent in fleet.agents.values():
        scene.inject_gpu_fault(agent)


def recovers(fleet: Fleet) -> None:
    for agent in fleet.agents.values():
        scene.log_driver_load(agent)


def state_of(aggregator: Aggregator, name: str) -> tuple[str, str | None]:
    """Return the state of the incident of a node, and why its mark is not on its object."""
    items = [item for item in aggregator.query("/v1/incidents")["incidents"] if item["node"] == name]
    return (items[0]["state"], items[0]["write"]) if items else ("", None)


def until_marked(fleet: Fleet, names: set[str]) -> None:
    fleet.aggregators[0].until(lambda: marked_objects(fleet.cluster) == names)


def until_events(fleet: Fleet, count: int) -> None:
    fleet.aggregators[0].until(lambda: marked_events(fleet.cluster) == count)


def until_state(fleet: Fleet, names: Iterable[str], state: str, write: str) -> None:
    [aggregator] = fleet.aggregators
    aggregator.until(lambda: {state_of(aggregator, name) for name in names} <= {(state, write)})


@contextmanager
def acting_without(fleet: Fleet, right: Right) -> Iterator[None]:
    """Take a right away; without that of the lease, wait until no aggregator is active."""
    [aggregator] = fleet.aggregators
    with without(fleet.cluster, right):
        if right.resource == "leases":
            aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 0)
        yield


def test_what_is_reported_is_on_the_objects_without_each_right(controlplane: Cluster) -> None:
    with (
        published_devices(controlplane, SLICED),
        running_fleet(controlplane, scene.ENFORCED, *NODES) as fleet,
    ):
        [aggregator] = fleet.aggregators
        for right in RIGHTS:
            events, is_lease = marked_events(controlplane), right.resource == "leases"
            write = "WritePending" if is_lease else "WriteRefused"
            marked = set(NODES) - set(right.refuses)
            with acting_without(fleet, right):
                fails(fleet)
                until_marked(fleet, marked)
                until_state(fleet, right.refuses, "Withheld", write)
                compare(controlplane, aggregator, right)
                if not is_lease and right.stale != "Event":
                    until_events(fleet, events + len(marked))
            until_marked(fleet, set(NODES))
            compare(controlplane, aggregator)

            remaining = (
                set(NODES)
                if is_lease
                else {SLICED}
                if right.verb == "delete"
                else {*right.refuses} - {SLICED}
            )
            with acting_without(fleet, right):
                recovers(fleet)
                until_marked(fleet, remaining)
                until_state(fleet, remaining, "Recovering", write)
                compare(controlplane, aggregator, right)
            until_marked(fleet, set())
            compare(controlplane, aggregator)


def test_a_pause_that_cannot_be_stored_is_not_reported(controlplane: Cluster) -> None:
    right = Right(ROLE, "", "configmaps", "patch", namespace="nodeguard")
    with running_fleet(controlplane, scene.ENFORCED, WHOLE) as fleet:
        [aggregator] = fleet.aggregators
        decisions = "/api/v1/namespaces/nodeguard/configmaps/nodeguard-decisions"
        controlplane.kubectl("create", "configmap", "-n", "nodeguard", "nodeguard-decisions")
        with without(controlplane, right):
            paused = run(aggregator, "pause", "--reason", "a test")
            assert paused.returncode != 0
            assert "forbidden" in paused.stderr
            assert controlplane.api.get(decisions).get("data", {}) == {}
            assert aggregator.query("/v1/status")["paused"] == ""
            assert aggregator.metric("nodeguard_aggregator_paused") == 0
