"""What people and other controllers write on Nodes stays, while nodeguard writes on the same ones."""

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
from tests.e2e.scene import at_work

# Set by somebody before anything happened, and never touched again.
BEFORE = {
    "key": "example.com/reserved",
    "value": "team-a",
    "effect": "PreferNoSchedule",
    "timeAdded": "2026-01-02T03:04:05Z",
}
COMES_AND_GOES = {"key": "example.com/busy", "effect": "NoSchedule"}
ROUNDS = 4

Spec = dict[str, Any]


def changed(cluster: Cluster, name: str, change: Callable[[Spec], Spec | None]) -> Spec | None:
    """Read, modify, write, as kubectl and controllers do. Gives the Node; None where nothing was."""
    while True:
        found = scene.node(cluster, name)
        patch = change(found["spec"])
        if patch is None:
            return None
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            return cluster.api.patch(f"/api/v1/nodes/{name}", {"metadata": version, "spec": patch})
        except ApiError as error:
            if error.code != 409:
                raise


def tainting(cluster: Cluster, name: str) -> None:
    """Set a taint, see that it is there for a while, and take it away: so it stays away."""
    changed(cluster, name, lambda spec: {"taints": [*spec.get("taints", []), COMES_AND_GOES]})
    for _ in range(3):
        assert COMES_AND_GOES in scene.taints(cluster, name)
    changed(cluster, name, lambda spec: {"taints": [one for one in spec["taints"] if one != COMES_AND_GOES]})
    for _ in range(3):
        assert COMES_AND_GOES not in scene.taints(cluster, name)


def cordoning(cluster: Cluster, name: str) -> None:
    """Cordon a Node that is not, as `kubectl cordon` does, and see that it stays so until it is taken back."""
    if changed(cluster, name, lambda spec: None if spec.get("unschedulable") else {"unschedulable": True}):
        for _ in range(5):
            assert scene.node(cluster, name)["spec"].get("unschedulable"), "a person's cordon was undone"
            time.sleep(0.02)
        changed(cluster, name, lambda _: {"unschedulable": None})


@contextmanager
def writers(cluster: Cluster, name: str, *works: Callable[[Cluster, str], None]) -> Iterator[list[int]]:
    """Others that write on a Node over and over, each in a thread. Gives how often each has; what one met is
    raised at the end.
    """
    over = threading.Event()
    done, met = [0] * len(works), list[BaseException]()

    def go_on(number: int) -> None:
        try:
            while not over.is_set():
                works[number](cluster, name)
                done[number] += 1
        except BaseException as error:  # noqa: BLE001 - raised below
            met.append(error)

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        over.set()
        for thread in threads:
            thread.join()
    for error in met:
        raise error


def test_what_others_write_stays(controlplane: Cluster) -> None:
    policy = f"{scene.ENFORCED}markWith: {{cordon: true}}\n"
    with at_work(controlplane, policy, "busy", "cordoned") as made:
        # One that a person has cordoned long ago stays so, whatever comes and goes.
        controlplane.kubectl("cordon", "cordoned")
        for name in ("busy", "cordoned"):
            controlplane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [BEFORE]}})
        controlplane.kubectl("label", "node", "busy", "example.com/rack=r1")
        settled = [BEFORE, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]

        def theirs(name: str) -> list[Any]:
            return [one for one in scene.taints(controlplane, name) if not one["key"].startswith("nodeguard")]

        def without_time(found: list[Any]) -> list[Any]:
            return [
                one if one["key"] == BEFORE["key"] else {"key": one["key"], "effect": one["effect"]}
                for one in found
            ]

        controlplane.until(lambda: len(theirs("cordoned")) == 2, "kube-controller-manager")
        with writers(controlplane, "busy", tainting, cordoning) as done:
            for _ in range(ROUNDS):
                for name, agent in made.agents.items():
                    scene.fails(agent)
                    agent.until(partial(scene.is_marked, controlplane, name))
                    assert BEFORE in scene.taints(controlplane, name)
                for name, agent in made.agents.items():
                    scene.driver_is_loaded(agent)
                    agent.until(partial(scene.is_unmarked, controlplane, name))
                    assert BEFORE in scene.taints(controlplane, name)
        assert min(done) > ROUNDS

        assert without_time(theirs("cordoned")) == settled
        assert scene.node(controlplane, "cordoned")["spec"]["unschedulable"]
        controlplane.until(
            lambda: not scene.node(controlplane, "busy")["spec"].get("unschedulable"), "kube-apiserver"
        )
        controlplane.until(lambda: theirs("busy") == [BEFORE], "kube-controller-manager")
        assert scene.node(controlplane, "busy")["metadata"]["labels"]["example.com/rack"] == "r1"
