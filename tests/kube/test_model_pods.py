"""The model of pods, budgets, evictions and notices answers random operations as a real control plane does."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from nodeguard.model.eviction import DrainCluster, EvictionState, PodNotice
from nodeguard.model.pod import NodePod
from tests.controlplane.cluster import Cluster
from tests.kube.model_pods import ModelPods
from tests.kube.real_pods import BUDGETS, NODE, PODS, Pods
from tests.waiting import until

NAMES = ("a", "b", "c", "d")
LABELS: tuple[dict[str, str], ...] = ({"app": "x"}, {"app": "x"}, {"app": "x", "tier": "y"}, {})
PHASES = ("Running", "Running", "Running", "Unready Running", "Pending")
# Times of notices; the empty one removes a notice.
TIMES = ("2026-12-01T00:00:00Z", "2026-12-01T02:00:00Z", "")
SELECTORS = {"b1": {"app": "x"}, "b2": {"tier": "y"}}

# Disruptions allowed, healthy pods, and names of disrupted ones.
Counts = tuple[int, int, list[str]]


class Model:
    """The operations of a test on the model."""

    def __init__(self) -> None:
        self.pods = ModelPods(0.0, grace=30.0)
        self.drain: DrainCluster = self.pods

    def run(self, name: str, phase: str, labels: dict[str, str]) -> str:
        status = {"has_started": phase != "Pending", "is_ready": phase == "Running"}
        return self.pods.create(NODE, "default", name, labels=labels, **status)

    def report_ready(self, pod: NodePod) -> None:
        self.pods.change(pod.key.uid, is_ready=not pod.is_ready)

    def touch(self, pod: NodePod) -> None:
        self.pods.change(pod.key.uid)

    def remove(self, pod: NodePod) -> None:
        self.pods.ends[pod.key.uid] = self.pods.now

    def protect(self, name: str, minimum: int, policy: str) -> None:
        always_allows = policy == "AlwaysAllow"
        self.pods.protect("default", name, SELECTORS[name], minimum, always_allows=always_allows)

    def unprotect(self, name: str) -> None:
        self.pods.budgets = [budget for budget in self.pods.budgets if budget.name != name]

    def counts(self) -> dict[str, Counts]:
        self.pods.sync()
        return {
            budget.name: (budget.allowed, budget.healthy, sorted(budget.disrupted))
            for budget in self.pods.budgets
        }


class Real:
    """The same on a control plane."""

    def __init__(self, pods: Pods, cluster: Cluster) -> None:
        self.pods, self.drain, self._api = pods, pods.drain, cluster.api
        self._touches = 0

    def run(self, name: str, phase: str, labels: dict[str, str]) -> str:
        phase, is_ready = phase.removeprefix("Unready "), phase == "Running"
        self.pods.run(name, phase=phase, is_ready=is_ready, **labels)
        uid: str = self.pods.stored(name)["metadata"]["uid"]
        return uid

    def report_ready(self, pod: NodePod) -> None:
        self.pods.report_ready(pod.key.name, is_ready=not pod.is_ready)

    def touch(self, pod: NodePod) -> None:
        annotations = {"test": pod.version}
        self._api.patch(f"{PODS}/{pod.key.name}", {"metadata": {"annotations": annotations}})

    def remove(self, pod: NodePod) -> None:
        self._api.delete(f"{PODS}/{pod.key.name}")

    def protect(self, name: str, minimum: int, policy: str) -> None:
        self.pods.create_budget(name, minimum, SELECTORS[name], policy)

    def unprotect(self, name: str) -> None:
        self._api.delete(f"{BUDGETS}/{name}")

    def touch_budgets(self) -> None:
        """Change the budgets, so that their pods are counted again."""
        self._touches += 1
        for item in self._api.get(BUDGETS)["items"]:
            annotations = {"test": str(self._touches)}
            self._api.patch(
                f"{BUDGETS}/{item['metadata']['name']}", {"metadata": {"annotations": annotations}}
            )

    def counts(self) -> dict[str, Counts]:
        budgets = self._api.get(BUDGETS)
        statuses = {item["metadata"]["name"]: item.get("status", {}) for item in budgets["items"]}
        return {
            name: (
                status.get("disruptionsAllowed", -1),
                status.get("currentHealthy", -1),
                sorted(status.get("disruptedPods", {})),
            )
            for name, status in statuses.items()
        }


class Client:
    """A client of either, with the pods that it has read, by name, and their uids in the order of creation."""

    def __init__(self, server: Model | Real) -> None:
        self.server = server
        self.seen: dict[str, list[NodePod]] = {}
        self.uids: list[str] = []
        self.budgets: set[str] = set()

    async def operate(self, choice: random.Random) -> tuple[Any, ...]:
        """Do one random operation, the same for the same state of the source."""
        name, age, is_dry_run = choice.choice(NAMES), choice.choice([0, 0, 1]), choice.random() < 0.3
        phase, labels = choice.choice(PHASES), choice.choice(LABELS)
        policy = choice.choice(["", "", "IfHealthyBudget", "AlwaysAllow"])
        minimum, budget = choice.randrange(4), choice.choice(["b1", "b1", "b2"])
        notice = PodNotice(choice.choice(TIMES), "the pod is evicted")
        operation = choice.choice(
            ["run"] * 3 + ["evict"] * 6 + ["notice"] * 4 + ["touch", "ready", "remove", "budget", "budget"]
        )
        present = {pod.key.name: pod for pod in await self.server.drain.node_pods(NODE)}
        pod = present.get(name)
        if operation == "budget":
            (self.server.unprotect if budget in self.budgets else self._protect(minimum, policy))(budget)
            self.budgets ^= {budget}
        elif operation == "run" and pod is None:
            self.uids.append(self.server.run(name, phase, labels))
        elif operation == "ready" and pod is not None and pod.has_started:
            self.server.report_ready(pod)
        elif operation == "touch" and pod is not None:
            self.server.touch(pod)
        elif operation == "remove" and pod is not None and pod.is_terminating:
            self.server.remove(pod)
        elif operation in {"evict", "notice"} and self.seen.get(name):
            seen = self.seen[name]
            read, drain = seen[-1 - min(age, len(seen) - 1)], self.server.drain
            if operation == "evict":
                response = await drain.evict(read, is_dry_run=is_dry_run)
            else:
                response = await drain.write_notice(read, notice, is_dry_run=is_dry_run)
            return name, age, is_dry_run, operation, response.state
        else:
            operation = "none"
        return operation, name

    def _protect(self, minimum: int, policy: str) -> Any:
        return lambda budget: self.server.protect(budget, minimum, policy)

    async def state(self) -> tuple[list[Any], list[Any]]:
        """Return the pods and budgets as a drain reads them."""
        pods = sorted(await self.server.drain.node_pods(NODE), key=lambda pod: pod.key.name)
        for pod in pods:
            seen = self.seen.setdefault(pod.key.name, [])
            if pod not in seen:
                seen.append(pod)
        budgets = await self.server.drain.disruption_budgets("default")
        return (
            [
                (
                    pod.key.name,
                    self.uids.index(pod.key.uid),
                    pod.has_started,
                    pod.is_ready,
                    pod.is_terminating,
                    pod.is_evicted,
                    pod.drain_at,
                    pod.labels,
                )
                for pod in pods
            ],
            sorted((budget.name, budget.allowed, budget.frees_unready) for budget in budgets),
        )


def wait_for_counts(server: Real, counts: dict[str, Counts], operation: object) -> None:
    """Wait until the controller has counted the pods.

    Of several budgets that select a changed pod, it counts the pods of one only, see `getPdbForPod` in
    https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/disruption/disruption.go
    """

    def are_equal() -> bool:
        if server.counts() == counts:
            return True
        server.touch_budgets()
        return False

    until(are_equal, lambda: f"{operation}: {counts}, {server.counts()}", every=0.05)


@pytest.mark.parametrize("seed", [4, 13, 21])
async def test_the_model_answers_as_a_real_control_plane(
    pods: Pods, controlplane: Cluster, seed: int
) -> None:
    server = Real(pods, controlplane)
    model, real = Client(Model()), Client(server)
    sources = random.Random(seed), random.Random(seed)
    answers: Counter[tuple[str, EvictionState]] = Counter()
    for number in range(100):
        expected = await real.operate(sources[0])
        assert await model.operate(sources[1]) == expected, f"operation {number}"
        wait_for_counts(server, model.server.counts(), expected)
        assert await model.state() == await real.state(), f"operation {number}: {expected}"
        answers[expected[-2:]] += 1
    for state in (EvictionState.ACCEPTED, EvictionState.GONE, EvictionState.CHANGED, EvictionState.REFUSED):
        assert answers["evict", state], state
    for state in (EvictionState.ACCEPTED, EvictionState.GONE):
        assert answers["notice", state], state
