"""Gangs of three pods, each of which needs a whole node, by their owners: manifests, and the state of the owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import GPU
from tests.e2e.training import PODS, TEAM

SIZE = 3

# The label that names the gang of a pod.
GANG = "tests/gang"

JOB, JOB_SET = "batch/v1/Job", "jobset.x-k8s.io/v1alpha2/JobSet"
LEADER_WORKER_SET, STATEFUL_SET = "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "apps/v1/StatefulSet"

_POD_GROUPS = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{TEAM}/podgroups"

# A Job does not count evicted pods as failures, or it fails with the first one.
IGNORE_EVICTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
FAIL_ON_EVICTION = {**IGNORE_EVICTION, "action": "FailJob"}


class Gang(NamedTuple):
    """A gang of an owner. kind: of the owner, after its API version. spec: of the owner. group: disruptionMode of the
    PodGroup, empty for none. leader: whether its first pod is evicted, not the second one.
    """

    kind: str
    spec: Object
    group: str = ""
    leader: bool = False

    def submit(self, cluster: Cluster, name: str) -> None:
        if self.group:
            spec = {"schedulingPolicy": {"gang": {"minCount": SIZE}}, "disruptionMode": {self.group: {}}}
            cluster.api.post(_POD_GROUPS, {"metadata": {"name": name}, "spec": spec})
        api, _, kind = self.kind.rpartition("/")
        cluster.api.post(
            self._path, {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": self.spec}
        )

    def owner(self, cluster: Cluster, name: str) -> Object:
        return cluster.api.get(f"{self._path}/{name}")

    @property
    def evictions(self) -> int:
        """How many of its pods the drain of a node evicts: all if the PodGroup asks for it."""
        return SIZE if self.group == "all" else 1

    @property
    def _path(self) -> str:
        api, _, kind = self.kind.rpartition("/")
        return f"/apis/{api}/namespaces/{TEAM}/{kind.lower()}s"


def job_spec(
    name: str, *, group: bool = False, pods: int = SIZE, rules: Sequence[Object] = (), **more: Any
) -> Object:
    """Return the spec of an indexed Job. group: whether its pods are in the PodGroup of its name. rules: of its
    podFailurePolicy. more: of the spec.
    """
    template = _template(name)
    template["spec"]["restartPolicy"] = "Never"
    if group:
        template["spec"]["schedulingGroup"] = {"podGroupName": name}
    if rules:
        more["podFailurePolicy"] = {"rules": list(rules)}
    return {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": template,
        **more,
    }


def job_set_spec(name: str, failure_policy: Object | None = None, **job: Any) -> Object:
    """Return the spec of a JobSet with a Job for each pod. job: as of job_spec."""
    template = {"spec": job_spec(name, pods=1, **job)}
    policy = {"failurePolicy": failure_policy} if failure_policy else {}
    return {"replicatedJobs": [{"name": "worker", "replicas": SIZE, "template": template}], **policy}


def leader_worker_set_spec(name: str, restart_policy: str) -> Object:
    """Return the spec of a LeaderWorkerSet with one group."""
    template = {"size": SIZE, "workerTemplate": _template(name), "restartPolicy": restart_policy}
    return {"replicas": 1, "leaderWorkerTemplate": template}


def stateful_set_spec(name: str) -> Object:
    return {
        "replicas": SIZE,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {GANG: name}},
        "template": _template(name),
    }


def pods_of_gangs(cluster: Cluster) -> dict[str, dict[str, Object]]:
    """Return the pods of each gang by uid, without those that have ended or are ending."""
    gangs: dict[str, dict[str, Object]] = {}
    for pod in cluster.api.get(PODS)["items"]:
        meta = pod["metadata"]
        if not meta.get("deletionTimestamp") and pod["status"]["phase"] in {"Pending", "Running"}:
            gangs.setdefault(meta["labels"][GANG], {})[meta["uid"]] = pod
    return gangs


def has_failed(owner: Object) -> bool:
    conditions = owner.get("status", {}).get("conditions", [])
    return any(item["type"] == "Failed" and item["status"] == "True" for item in conditions)


def _template(name: str) -> Object:
    work = {"name": "work", "image": "work", "resources": {"limits": {GPU: "8"}}}
    return {"metadata": {"labels": {GANG: name}}, "spec": {"containers": [work]}}
