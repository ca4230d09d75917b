from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes import KubernetesBackend
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.planner import Planner
from nodeguard.kube.client import ApiClient
from nodeguard.kube.incident_object import ObservedIncident, incident_status
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import TopologyLabels
from tests.controlplane.certificates import Authority
from tests.controlplane.credentials import write_kubeconfig
from tests.fleet.scene import AT_ONCE, CHECKS

NODE = Node(name="gpu-1", uid="uid-1", version="10", gpus=8)


class Scene:
    """A world whose API server is never asked; what there is to plan for is counted."""

    def __init__(self, api: ApiClient) -> None:
        self.planner = Planner(AT_ONCE, CHECKS)
        self.news = 0
        self.world = KubernetesBackend(
            api,
            "nodeguard",
            "pod-1",
            self.planner,
            InstructionOutbox(),
            wake=self._count,
            log=lambda _: None,
        )

    def _count(self) -> None:
        self.news += 1


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    write_kubeconfig(
        tmp_path / "kubeconfig", "https://127.0.0.1:1", Authority(tmp_path).certificate, "secret"
    )
    api = await ApiClient.connect(str(tmp_path / "kubeconfig"))
    yield Scene(api)
    await api.close()


async def test_a_node_that_says_what_is_known_is_no_news(scene: Scene) -> None:
    scene.world.node_changed(NODE)
    assert scene.news == 1
    scene.world.node_changed(NODE)  # as the watch tells what an answer told before
    scene.world.node_changed(replace(NODE, version="11"))  # as a kubelet changes what is not kept of it
    assert scene.news == 1
    assert scene.planner.state.nodes["uid-1"].version == "11"
    scene.world.node_changed(replace(NODE, version="12", taints=(Taint("theirs", "NoSchedule"),)))
    assert scene.news == 2


async def test_a_node_as_it_was_before_is_not_believed(scene: Scene) -> None:
    scene.world.node_changed(NODE)
    scene.world.node_changed(replace(NODE, version="9", gpus=4))
    assert (scene.news, scene.planner.state.nodes["uid-1"].gpus) == (1, 8)


HELD = Incident(
    "check-gpu-lost-1",
    "",
    "",
    "check/gpu-lost",
    "gpu-lost",
    Health.WARNING,
    IncidentState.OPEN,
    1e9,
    1e9,
    fault_class="held",
)


def said(version: int, clear: str, acknowledged: str = "") -> ObservedIncident:
    decision = OperatorDecision(HELD.name, acknowledged, clear)
    return ObservedIncident(HELD.name, "uid-of-it", str(version), decision, incident_status(HELD))


async def test_a_held_check_is_cleared_once_for_each_word_of_people(scene: Scene) -> None:
    def hold() -> None:
        scene.planner.diagnosis.restore_suppression("gpu-lost", "", 0.0)

    held = scene.planner.diagnosis.suppressed_checks
    scene.world.incident_changed(said(1, "Ann at noon"))
    scene.world.input_synced("NodeIncidents")
    hold()
    scene.world.incident_changed(said(1, "Ann at noon"))
    scene.world.incident_changed(said(2, "Ann at noon", "Bob knows"))
    assert list(held) == ["gpu-lost"]
    before = scene.news
    scene.world.incident_changed(said(3, "Bob at one", "Bob knows"))
    assert (list(held), scene.news) == ([], before + 1)
    hold()
    scene.world.input_synced("NodeIncidents")  # as a watch that begins anew
    scene.world.incident_changed(said(3, "Bob at one", "Bob knows"))
    scene.world.incident_changed(said(4, "", "Bob knows"))
    assert list(held) == ["gpu-lost"]


async def test_ways_that_the_cluster_declares_are_news_and_seat_its_nodes(scene: Scene) -> None:
    scene.world.node_changed(replace(NODE, labels={"block": "b1"}))
    scene.world._import((TopologyLabels("fabric", ("block",)),))
    assert scene.news == 2
    assert scene.planner.state.placements["uid-1"].domains == ("domain/fabric/b1",)
