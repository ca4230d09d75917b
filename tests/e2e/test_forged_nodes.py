"""What a Node says of itself: a kubelet harms its own node only, and unread incidents remove no mark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.finding import Action, Health
from nodeguard.model.mark import (
    EPOCH_ANNOTATION,
    STATE_ANNOTATION,
    Charge,
    DegradedMark,
    Mark,
    MarkCause,
    MarkRecord,
    PastCharge,
)
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.daemonset.manifests import apply
from tests.e2e.bulk_nodes import make_nodes
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.scene import INCIDENTS
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, reporting_swarm
from tests.e2e.watcher import NodeState, Watcher
from tests.waiting import until

NODES = "/api/v1/nodes"
LEAF_LABEL = "network.topology.nvidia.com/leaf"
CHECKS = ("gpu-lost", "gpu-gsp-failure", "port-down")
HEALTHY = healthy_report(CHECKS)
POLICY = """
defaultMode: enforce
budget: {fleet: 100%, pool: 100%, domain: 100%, suspect: 100%, degradedDomains: 100%, firstDegradedDomain: 100%,
  perCheck: {new: 2, within: 10m, active: 10}}
diagnosis: {enforce: [fabric], suppression: {minNodes: 100000}}
gracePeriod: {quarantine: 1s, suspect: 1s, sharedHardware: 5m}
soak: {initial: 1s, max: 1s, resetAfter: 10m}
"""
DOMAIN = "nodeguard.dev/domain-degraded=fabric"

LINK = ReportedFinding(
    "port-down",
    "port/mlx5_0/1",
    Health.FATAL,
    action=Action.REPLACE_COMPONENT,
    family="infiniband",
    message="the port is down",
    evidence=(ReportedEvidence("infiniband", "port.up False"),),
    topologies=("fabric",),
)
DOWN = faulty_report(HEALTHY, LINK)
LOST = faulty_report(HEALTHY, fatal_finding("gpu-lost"))


class Scene:
    """A fleet in leaves, one aggregator, and simulated agents. leaf: names of the nodes of the first leaf."""

    def __init__(self, fleet: Fleet, agents: Swarm, aggregator: Aggregator, leaf: list[str]) -> None:
        self.fleet, self.agents, self.aggregator, self.leaf = fleet, agents, aggregator, leaf

    def restart(self) -> None:
        """Kill the aggregator, and start another one."""
        self.aggregator.kill()
        self.aggregator.start()

    def wait_until_active(self) -> None:
        self.aggregator.until(lambda: self.aggregator.metric("nodeguard_aggregator_active") == 1)

    def inactive_reason(self) -> str:
        """Return why the aggregator, as leader, writes nothing."""
        return str(self.aggregator.query("/v1/status")["replica"]["inactive_reason"])

    def readiness(self) -> str:
        """Return the response of the readiness probe, also if it is not ready."""
        try:
            with urlopen(f"http://{self.aggregator.metrics}/readyz", timeout=5.0) as response:
                return str(response.read().decode())
        except HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""


@contextmanager
def running(cluster: Cluster, size: int, leaf: int) -> Iterator[Scene]:
    """Run a fleet. leaf: number of nodes of the first leaf; the others have eight."""
    with deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY)
        names = [f"gpu-{number:03}" for number in range(size)]
        leaves = {
            name: {LEAF_LABEL: "l0" if number < leaf else f"l{1 + (number - leaf) // 8}"}
            for number, name in enumerate(names)
        }
        uids = make_nodes(cluster, names, leaves)
        with reporting_swarm(fleet, uids, HEALTHY) as (aggregator, agents):
            scene = Scene(fleet, agents, aggregator, names[:leaf])
            scene.wait_until_active()
            yield scene


@contextmanager
def without_verbs(cluster: Cluster, *verbs: str) -> Iterator[None]:
    """Take rights on incidents away from the aggregator."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodeguard-aggregator"
    role = cluster.api.get(path)
    rules: list[Object] = json.loads(json.dumps(role["rules"]))
    for rule in rules:
        if any(resource.startswith("nodeincidents") for resource in rule.get("resources", ())):
            rule["verbs"] = [verb for verb in rule["verbs"] if verb not in verbs]
    cluster.api.patch(path, {"rules": [rule for rule in rules if rule["verbs"]]})
    try:
        yield
    finally:
        cluster.api.patch(path, {"rules": role["rules"]})


def states_of(watcher: Watcher, names: list[str]) -> list[NodeState]:
    return [state for state in watcher.states if state.node in names]


def incident_states(cluster: Cluster) -> list[str]:
    """Return the states of the incidents of domains."""
    statuses = [item.get("status", {}) for item in cluster.api.get(INCIDENTS)["items"]]
    return [status["state"] for status in statuses if status.get("domain")]


def test_a_kill_between_the_marks_of_a_domain_and_its_incident_releases_no_mark(
    controlplane: Cluster,
) -> None:
    with running(controlplane, size=40, leaf=20) as scene, Watcher(controlplane) as watcher:
        with without_verbs(controlplane, "create", "patch", "update"):
            scene.agents.set_reports(dict.fromkeys(scene.leaf, DOWN))
            scene.aggregator.until(lambda: len(watcher.marked()) == len(scene.leaf))
            scene.aggregator.kill()
        assert controlplane.api.get(INCIDENTS)["items"] == []
        count = len(watcher.states)
        scene.aggregator.start()
        scene.wait_until_active()
        until(lambda: incident_states(controlplane) == ["Marked"], lambda: str(incident_states(controlplane)))
        later = [state for state in watcher.states[count:] if state.node in scene.leaf]
        assert [state for state in later if state.marks != (DOMAIN,)] == []
        assert watcher.marked().keys() == set(scene.leaf)


@pytest.mark.parametrize("missing", ["definition", "right"])
def test_unread_incidents_release_no_mark_and_the_start_waits(controlplane: Cluster, missing: str) -> None:
    with running(controlplane, size=40, leaf=8) as scene, Watcher(controlplane) as watcher:
        lost, repaired = scene.leaf[0].replace("000", "020"), scene.leaf[0].replace("000", "030")
        scene.agents.set_reports({**dict.fromkeys(scene.leaf, DOWN), lost: LOST, repaired: LOST})
        scene.aggregator.until(lambda: watcher.marked().keys() == {*scene.leaf, lost, repaired})
        until(lambda: incident_states(controlplane) == ["Marked"], lambda: str(incident_states(controlplane)))
        scene.aggregator.kill()
        # A leader would release this mark at once.
        scene.agents.set_reports({repaired: HEALTHY})
        with unreadable(controlplane, missing):
            count = len(watcher.states)
            scene.aggregator.start()
            expected = "install the CustomResourceDefinition" if missing == "definition" else "grant"
            scene.aggregator.until(lambda: expected in scene.readiness())
            assert "not read yet: NodeIncidents (" in scene.readiness()
            # Once the lease of the killed aggregator has ended.
            scene.aggregator.until(lambda: expected in scene.inactive_reason())
            assert watcher.states[count:] == []
        scene.wait_until_active()
        scene.aggregator.until(lambda: watcher.marked().keys() == {*scene.leaf, lost})
        until(lambda: incident_states(controlplane) == ["Marked"], lambda: str(incident_states(controlplane)))
        marks = {
            state.marks
            for state in states_of(watcher, [*scene.leaf, lost])
            if state in watcher.states[count:]
        }
        assert () not in marks


@contextmanager
def unreadable(cluster: Cluster, missing: str) -> Iterator[None]:
    """Make the incidents unreadable: delete their definition, or the right to list them."""
    if missing == "right":
        with without_verbs(cluster, "get", "list", "watch"):
            yield
        return
    cluster.kubectl("delete", "customresourcedefinition", "nodeincidents.nodeguard.dev")
    try:
        yield
    finally:
        apply(cluster)


def forged_node(now: float, epoch: int) -> Object:
    """Return the Node that a kubelet registers: it claims to know of a degraded domain and of many charges."""
    cause = MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu-bus", now)
    record = MarkRecord(
        (cause,),
        Charge("gpu-lost", Mark.QUARANTINE, now + 1e9),
        tuple(PastCharge("gpu-lost", now + 1e9 + number, now + 1e9) for number in range(16)),
        degraded=tuple(
            DegradedMark(f"fabric/l{leaf}", ("link", "link-down"), now - 60.0) for leaf in range(5)
        ),
    )
    made = node("forged", labels={LEAF_LABEL: "l0"})
    made["metadata"]["annotations"] = {STATE_ANNOTATION: encode_record(record), EPOCH_ANNOTATION: str(epoch)}
    made["spec"] = {
        "taints": [{"key": "nodeguard.dev/quarantine", "value": "gpu-bus", "effect": "NoSchedule"}]
    }
    return made


def set_epoch(kubelet: Api, epoch: int, name: str = "forged") -> None:
    """Write an epoch on a Node, in each way."""
    for path in (f"{NODES}/{name}", f"{NODES}/{name}/status"):
        kubelet.patch(path, {"metadata": {"annotations": {EPOCH_ANNOTATION: str(epoch)}}})


def delete_policy_bindings(cluster: Cluster, kubelet: Api) -> None:
    """Delete the bindings of the admission policies, so that a kubelet may write what NodeRestriction permits."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    for item in cluster.api.get(path)["items"]:
        cluster.api.delete(f"{path}/{item['metadata']['name']}")
    cluster.api.post(NODES, forged_node(0.0, epoch=1))

    def is_permitted() -> bool:
        try:
            set_epoch(kubelet, 2)
        except ApiError as error:
            assert "ValidatingAdmissionPolicy" in str(error), error
            return False
        return True

    cluster.until(is_permitted, "kube-apiserver")


def test_a_kubelet_harms_its_own_node_only(controlplane: Cluster) -> None:
    with running(controlplane, size=40, leaf=8) as scene, Watcher(controlplane) as watcher:
        kubelet = controlplane.kubelet("forged")
        log = controlplane.processes.log(scene.aggregator.name)
        earlier = log.stat().st_size
        delete_policy_bindings(controlplane, kubelet)
        for refused in (
            partial(set_epoch, kubelet, 5, "gpu-010"),
            partial(kubelet.delete, f"{NODES}/gpu-010"),
        ):
            with pytest.raises(ApiError) as error:
                refused()
            assert error.value.code == 403
        marked: set[str] = set()
        for number, restarts in enumerate((False, True)):
            controlplane.api.delete(f"{NODES}/forged")
            kubelet.post(NODES, forged_node(time.time(), epoch=100 * (number + 1)))
            for step in range(5):
                set_epoch(kubelet, 1_000 * (number + 1) + step)
            if restarts:
                scene.restart()
                scene.wait_until_active()
            scene.aggregator.wait_while_it_plans(10.0)
            assert watcher.marked().keys() - {"forged"} == marked
            broken = f"gpu-{20 + number:03}"
            marked.add(broken)
            scene.agents.set_reports({broken: LOST})
            scene.aggregator.until(partial(_are_marked, watcher, marked))
        assert {state.node for state in watcher.states if state.marks} - {"forged"} == marked
        won = elections(log, earlier)
        # That before the restart, and one after it, above the epoch that the list of Nodes had.
        assert len({line["epoch"] for line in won}) <= 2, won


def elections(log: Path, since: int) -> list[Object]:
    """Return the lines of a log, without its first `since` bytes, in which an aggregator became leader. Other lines
    may be text, as of a program that could not start, or incomplete.
    """
    lines = log.read_bytes()[since:].splitlines()
    return [json.loads(line) for line in lines if b'"became leader"' in line]


def _are_marked(watcher: Watcher, names: set[str]) -> bool:
    return watcher.marked().keys() >= names
