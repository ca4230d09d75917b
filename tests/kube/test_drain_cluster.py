"""Pods, disruption budgets and evictions of a real API server, and what they change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_set import budget_reason
from nodeguard.kube.client import ApiClient
from nodeguard.model.eviction import Eviction, EvictionState, PodNotice, PodReadError
from nodeguard.model.pod import DRAIN_AT_ANNOTATION, DRAIN_NOW_ANNOTATION, PodKey
from tests.controlplane.cluster import Cluster
from tests.kube.real_pods import NODE, OTHER, Pods, drain_cluster


async def test_the_unfinished_pods_of_a_node_are_read_as_they_are_stored(pods: Pods) -> None:
    pods.run("train-0", gpu="GPU-614b", app="train")
    pods.run("waits", phase="Pending")
    pods.run("done", phase="Succeeded")
    pods.run("rejected", phase="Failed")
    pods.run("elsewhere", host=OTHER)
    first, second = sorted(await pods.drain.node_pods(NODE), key=lambda found: found.key)
    meta = pods.stored("train-0")["metadata"]
    assert (first.key, first.version) == (
        PodKey("default", "train-0", meta["uid"], "default/train-0"),
        meta["resourceVersion"],
    )
    assert (first.gpu_ids, first.labels) == (("GPU-614b",), {"app": "train"})
    # Kubernetes lets each pod tolerate two taints of a Node that is off, and not the quarantine.
    assert pods.stored("train-0")["spec"]["tolerations"]
    assert not first.tolerates_quarantine
    assert (second.key.name, second.gpu_ids) == ("waits", None)


async def test_an_eviction_is_allowed_and_the_pod_ends_with_its_own_grace(pods: Pods) -> None:
    pods.run("train-0")
    before = await pods.read("train-0")
    dry = await pods.drain.evict(before, is_dry_run=True)
    assert (dry, await pods.read("train-0")) == (Eviction(EvictionState.ACCEPTED), before)
    assert await pods.drain.evict(before, is_dry_run=False) == Eviction(EvictionState.ACCEPTED)
    after = await pods.read("train-0")
    assert (after.key, after.is_terminating, after.is_evicted) == (before.key, True, True)
    assert pods.stored("train-0")["metadata"]["deletionGracePeriodSeconds"] == 30
    # The eviction changed the pod: a repeated one with what was read before is refused, a new one is not.
    assert await pods.evict(before) == EvictionState.CHANGED
    assert await pods.evict(after) == EvictionState.ACCEPTED
    pods.remove("train-0")
    assert await pods.evict(after) == EvictionState.GONE
    assert await pods.evict(after, is_dry_run=True) == EvictionState.GONE


@pytest.mark.parametrize("is_dry_run", [True, False])
async def test_a_disruption_budget_refuses_and_is_named(pods: Pods, is_dry_run: bool) -> None:
    pods.run("train-0", app="train")
    pods.protect("all-of-them", 1, 0, app="train")
    before = await pods.read("train-0")
    response = await pods.drain.evict(before, is_dry_run=is_dry_run)
    assert response.state == EvictionState.REFUSED
    assert "disruption budget all-of-them needs 1 healthy pods and has 1 currently" in response.message
    # The budget is judged before the uid.
    namesake = replace(before, key=replace(before.key, uid="uid-of-another"))
    assert await pods.evict(namesake, is_dry_run=is_dry_run) == EvictionState.REFUSED
    assert await pods.read("train-0") == before


@pytest.mark.parametrize("is_dry_run", [True, False])
async def test_another_pod_of_the_name_is_not_evicted(pods: Pods, is_dry_run: bool) -> None:
    pods.run("train-0")
    before = await pods.read("train-0")
    namesake = replace(before, key=replace(before.key, uid="uid-of-another"))
    response = await pods.drain.evict(namesake, is_dry_run=is_dry_run)
    assert response.state == EvictionState.CHANGED
    assert "uid-of-another" in response.message
    assert before.key.uid in response.message
    assert await pods.read("train-0") == before


async def test_a_pod_with_a_newer_status_is_allowed_and_not_evicted(pods: Pods) -> None:
    """A kubelet reports at any time: a dry run is about the pod, and the eviction is of the pod as it was judged."""
    pods.run("train-0")
    before = await pods.read("train-0")
    outdated = replace(before, version="1")
    assert await pods.evict(outdated, is_dry_run=True) == EvictionState.ACCEPTED
    response = await pods.drain.evict(outdated, is_dry_run=False)
    assert response.state == EvictionState.CHANGED
    assert before.version in response.message
    assert await pods.read("train-0") == before


@pytest.mark.parametrize("is_dry_run", [True, False])
async def test_two_budgets_forbid_for_good(pods: Pods, is_dry_run: bool) -> None:
    for name in ("train-0", "train-1"):
        pods.run(name, app="train")
    for name in ("first", "second"):
        pods.protect(name, 1, 1, app="train")
    response = await pods.drain.evict(await pods.read("train-0"), is_dry_run=is_dry_run)
    assert response.state == EvictionState.FORBIDDEN
    assert "more than one PodDisruptionBudget" in response.message


async def test_dry_runs_are_not_joint_so_budgets_are_read(pods: Pods) -> None:
    for name in ("train-0", "train-1", "train-2"):
        pods.run(name, app="train")
    pods.protect("b1", 2, 1, app="train")
    first, second = await pods.read("train-0"), await pods.read("train-1")
    [budget] = await pods.drain.disruption_budgets("default")
    assert (str(budget), budget.allowed, budget.is_current) == ("default/b1", 1, True)
    assert budget.selects(first)
    assert [await pods.evict(pod, is_dry_run=True) for pod in (first, second)] == 2 * [EvictionState.ACCEPTED]
    assert await pods.evict(first) == EvictionState.ACCEPTED
    assert await pods.evict(second) == EvictionState.REFUSED


async def test_an_eviction_of_a_changed_pod_uses_its_budget(pods: Pods) -> None:
    """So a pod that changed is read again, and not evicted with what was read before."""
    for name in ("train-0", "train-1"):
        pods.run(name, app="train")
    pods.protect("b1", 1, 1, app="train")
    first = await pods.read("train-0")
    assert await pods.evict(replace(first, version="1")) == EvictionState.CHANGED
    assert await pods.evict(first) == EvictionState.REFUSED
    [budget] = await pods.drain.disruption_budgets("default")
    assert budget.allowed == 0


@pytest.mark.parametrize(
    ("policy", "minimum", "healthy", "is_allowed"),
    [
        ("", 1, 1, True),
        ("IfHealthyBudget", 1, 1, True),
        ("IfHealthyBudget", 2, 1, False),
        # A budget that needs no pod is never met: it counts the pod.
        ("IfHealthyBudget", 0, 0, False),
        ("IfHealthyBudget", 0, 1, True),
        ("AlwaysAllow", 2, 1, True),
        ("AlwaysAllow", 0, 0, True),
    ],
)
async def test_a_pod_that_is_not_ready_needs_a_budget_as_its_policy_says(
    pods: Pods, policy: str, minimum: int, healthy: int, is_allowed: bool
) -> None:
    pods.run("train-0", is_ready=False, app="train")
    for number in range(healthy):
        pods.run(f"healthy-{number}", app="train")
    pods.protect("b1", minimum, max(0, healthy - minimum), policy=policy, app="train")
    before = await pods.read("train-0")
    assert (before.has_started, before.is_ready) == (True, False)
    reason = budget_reason((before,), await pods.drain.disruption_budgets("default"))
    assert (reason == "") is is_allowed, reason
    for is_dry_run in (True, False):
        response = await pods.drain.evict(before, is_dry_run=is_dry_run)
        assert (response.state == EvictionState.ACCEPTED) is is_allowed, response


async def test_a_pod_that_has_not_started_needs_no_budget_even_with_two(pods: Pods) -> None:
    pods.run("train-0", phase="Pending", app="train")
    for name in ("b1", "b2"):
        pods.protect(name, 1, 0, app="train")
    before = await pods.read("train-0")
    assert (before.has_started, before.is_ready) == (False, False)
    assert budget_reason((before,), await pods.drain.disruption_budgets("default")) == ""
    for is_dry_run in (True, False):
        assert await pods.evict(before, is_dry_run=is_dry_run) == EvictionState.ACCEPTED


async def test_an_eviction_of_a_pod_that_is_not_ready_compares_its_uid_only(pods: Pods) -> None:
    """The API server replaces the resourceVersion of the request with the stored one."""
    pods.run("train-0", is_ready=False, app="train")
    pods.run("train-1", app="train")
    pods.protect("b1", 1, 0, app="train")
    before = await pods.read("train-0")
    namesake = replace(before, key=replace(before.key, uid="uid-of-another"))
    assert await pods.evict(namesake) == EvictionState.CHANGED
    assert await pods.evict(replace(before, version="1")) == EvictionState.ACCEPTED


NOTICE = PodNotice("2026-11-29T14:00:00Z", "nodeguard evicts this pod")


async def test_a_notice_is_one_annotation_of_the_pod_with_an_event(pods: Pods) -> None:
    pods.run("train-0")
    before, stored = await pods.read("train-0"), pods.stored("train-0")
    accepted = Eviction(EvictionState.ACCEPTED)
    assert await pods.drain.write_notice(before, NOTICE, is_dry_run=True) == accepted
    assert (await pods.read("train-0"), pods.events) == (before, [])
    assert await pods.drain.write_notice(before, NOTICE, is_dry_run=False) == accepted
    noticed = await pods.read("train-0")
    assert (noticed.drain_at, noticed.agrees_to_leave) == (NOTICE.drain_at, False)
    assert pods.stored("train-0")["metadata"]["annotations"] == {DRAIN_AT_ANNOTATION: NOTICE.drain_at}
    # The notice has changed the pod: an eviction names its new version.
    assert await pods.evict(before) == EvictionState.CHANGED
    assert await pods.evict(noticed, is_dry_run=True) == EvictionState.ACCEPTED
    pods.annotate("train-0", DRAIN_NOW_ANNOTATION, "true")
    assert (await pods.read("train-0")).agrees_to_leave
    # It is written over changes of others, and names the uid only.
    assert await pods.drain.write_notice(before, PodNotice("", "it stays"), is_dry_run=False) == accepted
    assert pods.stored("train-0")["metadata"]["annotations"] == {DRAIN_NOW_ANNOTATION: "true"}
    assert pods.stored("train-0")["spec"] == stored["spec"]
    shown = [
        (event.namespace, event.object_kind, event.uid, event.type, event.reason) for event in pods.events
    ]
    pod = ("default", "Pod", before.key.uid)
    assert shown == [(*pod, "Warning", "NodeguardDrainNotice"), (*pod, "Normal", "NodeguardDrainWithdrawn")]


async def test_a_notice_is_not_written_on_another_pod_of_the_name(pods: Pods) -> None:
    pods.run("train-0")
    before = await pods.read("train-0")
    namesake = replace(before, key=replace(before.key, uid="uid-of-another"))
    for is_dry_run in (True, False):
        response = await pods.drain.write_notice(namesake, NOTICE, is_dry_run=is_dry_run)
        assert response.state == EvictionState.GONE
    assert await pods.read("train-0") == before
    pods.remove("train-0")
    assert (await pods.drain.write_notice(before, NOTICE, is_dry_run=False)).state == EvictionState.GONE
    assert not pods.events


async def test_without_the_right_a_notice_is_forbidden(pods: Pods, controlplane: Cluster) -> None:
    pods.run("train-0")
    before = await pods.read("train-0")
    remedy = "with a rule of policy.drain.rules that has `when: deadline`"
    api = await ApiClient.connect(str(controlplane.kubeconfig), headers=[("Impersonate-User", "ann")])
    try:
        response = await drain_cluster(api).write_notice(before, NOTICE, is_dry_run=True)
    finally:
        await api.close()
    assert response.state == EvictionState.FORBIDDEN
    assert 'cannot patch resource "pods"' in response.message
    assert response.message.endswith(remedy)


async def test_without_the_right_an_eviction_is_forbidden(pods: Pods, controlplane: Cluster) -> None:
    pods.run("train-0")
    before = await pods.read("train-0")
    remedy = "as the manifests do with the value policy.drain.mode: observe or enforce"
    api = await ApiClient.connect(str(controlplane.kubeconfig), headers=[("Impersonate-User", "ann")])
    try:
        drain = drain_cluster(api)
        response = await drain.evict(before, is_dry_run=True)
        assert response.state == EvictionState.FORBIDDEN
        assert 'cannot create resource "pods/eviction"' in response.message
        assert response.message.endswith(remedy)
        with pytest.raises(PodReadError, match=remedy):
            await drain.node_pods(NODE)
        with pytest.raises(PodReadError, match=f"poddisruptionbudgets.*{remedy}"):
            await drain.disruption_budgets("default")
    finally:
        await api.close()
