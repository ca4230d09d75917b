"""Taints, labels and cordons of operators and other controllers stay while nodeguard writes to the same Nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.controlplane.api import ApiError
from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.scene import running_fleet

# Set by an operator before the test, and never changed.
PERMANENT = {
    "key": "example.com/reserved",
    "value": "team-a",
    "effect": "PreferNoSchedule",
    "timeAdded": "2026-01-02T03:04:05Z",
}
TEMPORARY = {"key": "example.com/busy", "effect": "NoSchedule"}
ROUNDS = 4

Spec = dict[str, Any]


def update(cluster: Cluster, name: str, change: Callable[[Spec], Spec | None]) -> Spec | None:
    """Read, modify and write a Node, as kubectl and controllers do. Returns the Node; None without a change."""
    while True:
        node = scene.get_node(cluster, name)
        patch = change(node["spec"])
        if patch is None:
            return None
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            return cluster.api.patch(f"/api/v1/nodes/{name}", {"metadata": version, "spec": patch})
        except ApiError as error:
            if error.code != 409:
                raise


def tainting(cluster: Cluster, name: str) -> None:
    """Set a taint, assert that it stays, remove it, and assert that it stays removed."""
    update(cluster, name, lambda spec: {"taints": [*spec.get("taints", []), TEMPORARY]})
    for _ in range(3):
        assert TEMPORARY in scene.taints(cluster, name)
    update(cluster, name, lambda spec: {"taints": [taint for taint in spec["taints"] if taint != TEMPORARY]})
    for _ in range(3):
        assert TEMPORARY not in scene.taints(cluster, name)


def cordoning(cluster: Cluster, name: str) -> None:
    """Cordon a Node as `kubectl cordon` does, assert that it stays cordoned, and uncordon it."""
    if update(cluster, name, lambda spec: None if spec.get("unschedulable") else {"unschedulable": True}):
        for _ in range(5):
            assert scene.get_node(cluster, name)["spec"].get("unschedulable"), (
                "the cordon of an operator was removed"
            )
            time.sleep(0.02)
        update(cluster, name, lambda _: {"unschedulable": None})


@contextmanager
def writers(cluster: Cluster, name: str, *works: Callable[[Cluster, str], None]) -> Iterator[list[int]]:
    """Run other writers of a Node in threads. Yields how often each has written; raises their errors at the end."""
    stopping = threading.Event()
    done, errors = [0] * len(works), list[BaseException]()

    def repeat(number: int) -> None:
        try:
            while not stopping.is_set():
                works[number](cluster, name)
                done[number] += 1
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    for error in errors:
        raise error


def test_changes_of_other_writers_stay(controlplane: Cluster) -> None:
    policy = f"{scene.ENFORCED}markWith: {{cordon: true}}\n"
    with running_fleet(controlplane, policy, "busy", "cordoned") as fleet:
        # A node that an operator has cordoned before stays cordoned.
        controlplane.kubectl("cordon", "cordoned")
        for name in ("busy", "cordoned"):
            controlplane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [PERMANENT]}})
        controlplane.kubectl("label", "node", "busy", "example.com/rack=r1")
        expected = [PERMANENT, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]

        def other_taints(name: str) -> list[Any]:
            taints = scene.taints(controlplane, name)
            return [taint for taint in taints if not taint["key"].startswith("nodeguard")]

        def without_time(taints: list[Any]) -> list[Any]:
            return [
                taint
                if taint["key"] == PERMANENT["key"]
                else {"key": taint["key"], "effect": taint["effect"]}
                for taint in taints
            ]

        controlplane.until(lambda: len(other_taints("cordoned")) == 2, "kube-controller-manager")
        with writers(controlplane, "busy", tainting, cordoning) as done:
            for _ in range(ROUNDS):
                for name, agent in fleet.agents.items():
                    scene.inject_gpu_fault(agent)
                    agent.until(partial(scene.is_marked, controlplane, name))
                    assert PERMANENT in scene.taints(controlplane, name)
                for name, agent in fleet.agents.items():
                    scene.log_driver_load(agent)
                    agent.until(partial(scene.is_unmarked, controlplane, name))
                    assert PERMANENT in scene.taints(controlplane, name)
        assert min(done) > ROUNDS

        assert without_time(other_taints("cordoned")) == expected
        assert scene.get_node(controlplane, "cordoned")["spec"]["unschedulable"]
        controlplane.until(
            lambda: not scene.get_node(controlplane, "busy")["spec"].get("unschedulable"), "kube-apiserver"
        )
        controlplane.until(lambda: other_taints("busy") == [PERMANENT], "kube-controller-manager")
        assert scene.get_node(controlplane, "busy")["metadata"]["labels"]["example.com/rack"] == "r1"
