"""Tests for nodeguard.kube.job_retries, also with Jobs of a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.job_retries import decode_job_retries
from nodeguard.model.eviction import PodReadError
from nodeguard.model.job import EvictionRule, JobRetries
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import pod
from tests.kube.real_pods import drain_cluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
EVICTED = {"type": "DisruptionTarget", "status": "True"}
IGNORE = {"action": "Ignore", "onPodConditions": [EVICTED]}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], EvictionRule.COUNT),
        ([IGNORE], EvictionRule.IGNORE),
        ([{**IGNORE, "action": "FailJob"}, IGNORE], EvictionRule.FAIL),
        ([{**IGNORE, "action": "FailIndex"}, IGNORE], EvictionRule.FAIL_INDEX),
        ([{**IGNORE, "action": "Count"}, IGNORE], EvictionRule.COUNT),
        (
            [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}, IGNORE],
            EvictionRule.IGNORE,
        ),
        ([{**IGNORE, "onPodConditions": [{**EVICTED, "status": "False"}]}], EvictionRule.COUNT),
        ([{**IGNORE, "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}], EvictionRule.COUNT),
    ],
)
def test_the_first_rule_for_evicted_pods_counts(rules: list[Any], expected: EvictionRule) -> None:
    job = {
        "metadata": {"name": "train", "namespace": "team-a", "uid": "u", "resourceVersion": "1"},
        "spec": {"backoffLimit": 2, "podFailurePolicy": {"rules": rules}},
        "status": {"failed": 1},
    }
    assert decode_job_retries(json.dumps(job).encode()) == JobRetries("team-a", "train", 1, 2, expected)


@pytest.mark.cluster
async def test_a_job_is_read_or_the_missing_right_is_named(controlplane: Cluster) -> None:
    spec = {**pod("train")["spec"], "restartPolicy": "Never"}
    template = {"template": {"spec": spec}, "suspend": True, "podFailurePolicy": {"rules": [IGNORE]}}
    controlplane.api.post(JOBS, {"metadata": {"name": "train"}, "spec": template})
    api = await ApiClient.connect(str(controlplane.kubeconfig))
    try:
        retries = await drain_cluster(api).job_retries("default", "train")
        assert retries == JobRetries("default", "train", failed=0, limit=6, rule=EvictionRule.IGNORE)
        indexed = {"template": {"spec": spec}, "completionMode": "Indexed", "completions": 2, "suspend": True}
        indexed["backoffLimitPerIndex"] = 1
        controlplane.api.post(JOBS, {"metadata": {"name": "sweep"}, "spec": indexed})
        retries = await drain_cluster(api).job_retries("default", "sweep")
        assert retries == JobRetries("default", "sweep", failed=0, limit=2_147_483_647, limit_per_index=1)
        with pytest.raises(PodReadError, match="404"):
            await drain_cluster(api).job_retries("default", "gone")
    finally:
        await api.close()
    without = await ApiClient.connect(str(controlplane.kubeconfig), headers=[("Impersonate-User", "ann")])
    try:
        with pytest.raises(PodReadError, match=r"jobs.*policy\.drain\.mode: observe or enforce"):
            await drain_cluster(without).job_retries("default", "train")
    finally:
        await without.close()
    controlplane.api.delete(JOBS)
