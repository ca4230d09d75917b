from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes import KubernetesBackend
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.fleet.diagnosis.results import SuppressedCheck
from nodeguard.kube.client import ApiClient
from nodeguard.kube.executor import WriteOutcome, WriteResult
from nodeguard.kube.incident_object import ObservedIncident
from nodeguard.kube.incident_projection import incident_status
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import ObservedMarks
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import TopologyLabels
from tests.controlplane.certificates import Authority
from tests.controlplane.credentials import write_kubeconfig
from tests.fleet.cluster_planner import ClusterPlanner
from tests.fleet.scene import AT_ONCE, CHECKS

NODE = Node(name="gpu-1", uid="uid-1", version="10", gpus=8)
QUARANTINE = Taint(Mark.QUARANTINE.key, "NoSchedule", "gpu")
RECORD = MarkRecord((MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu", 1.0),))


class Scene:
    """A backend without an API server. wakes: calls of the plan loop."""

    def __init__(self, api: ApiClient) -> None:
        self.planner = ClusterPlanner(AT_ONCE, CHECKS)
        self.wakes = 0
        self.inputs = FleetInputs(self.planner, self._wake)
        self.backend = KubernetesBackend(
            api, "nodeguard", "pod-1", self.planner, self.inputs, self.planner.cluster
        )
        self.watches = self.backend.watches

    def _wake(self) -> None:
        self.wakes += 1


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    write_kubeconfig(
        tmp_path / "kubeconfig", "https://127.0.0.1:1", Authority(tmp_path).certificate, "secret"
    )
    api = await ApiClient.connect(str(tmp_path / "kubeconfig"))
    yield Scene(api)
    await api.close()


async def test_only_relevant_changes_of_a_node_wake_the_plan_loop(scene: Scene) -> None:
    scene.watches.node_changed(NODE)
    assert scene.wakes == 1
    scene.watches.node_changed(NODE)  # the watch repeats the response of a write
    scene.watches.node_changed(replace(NODE, version="11"))  # a kubelet changes an unused field
    assert scene.wakes == 1
    assert scene.planner.cluster.nodes["uid-1"].version == "11"
    scene.watches.node_changed(replace(NODE, version="12", taints=(Taint("theirs", "NoSchedule"),)))
    assert scene.wakes == 2


async def test_an_older_version_of_a_node_is_ignored(scene: Scene) -> None:
    scene.watches.node_changed(NODE)
    scene.watches.node_changed(replace(NODE, version="9", gpus=4))
    assert (scene.wakes, scene.planner.state.nodes["uid-1"].gpus) == (1, 8)


SUPPRESSED = Incident(
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


def observed(version: int, clear: str, acknowledged: str = "") -> ObservedIncident:
    decision = OperatorDecision(SUPPRESSED.name, acknowledged, clear)
    status = incident_status(SUPPRESSED)
    return ObservedIncident(SUPPRESSED.name, "uid-of-incident", str(version), decision, status)


async def test_each_clear_of_a_suppressed_check_counts_once(scene: Scene) -> None:
    def suppress() -> None:
        scene.planner.diagnosis.open(SuppressedCheck("gpu-lost", 0.0, 0.0, (), 0, 0.0))

    suppressed = scene.planner.diagnosis.suppressed_checks
    scene.watches.incident_changed(observed(1, "Ann at noon"))
    scene.watches.synced("NodeIncidents")
    suppress()
    scene.watches.incident_changed(observed(1, "Ann at noon"))
    scene.watches.incident_changed(observed(2, "Ann at noon", "Bob knows"))
    assert list(suppressed) == ["gpu-lost"]
    before = scene.wakes
    scene.watches.incident_changed(observed(3, "Bob at one", "Bob knows"))
    assert (list(suppressed), scene.wakes) == ([], before + 1)
    suppress()
    scene.watches.synced("NodeIncidents")  # the watch lists again
    scene.watches.incident_changed(observed(3, "Bob at one", "Bob knows"))
    scene.watches.incident_changed(observed(4, "", "Bob knows"))
    assert list(suppressed) == ["gpu-lost"]


@pytest.mark.parametrize(
    ("clear", "is_suppressed"),
    [
        ("", True),
        ("Ann", False),
        ("Ann at 2001-09-09T01:46:40Z", False),
        ("Ann at 2001-09-09T01:46:39Z", True),  # of an earlier occurrence
    ],
)
async def test_a_clear_that_was_stored_before_the_start_is_carried_out(
    scene: Scene, clear: str, is_suppressed: bool
) -> None:
    scene.watches.incident_changed(observed(1, clear))
    scene.watches.synced("NodeIncidents")
    scene.planner.plan(Instant(1e9 + 60.0, 60.0, ""))
    assert list(scene.planner.diagnosis.suppressed_checks) == (["gpu-lost"] if is_suppressed else [])


async def test_imported_topologies_wake_the_plan_loop_and_place_nodes(scene: Scene) -> None:
    scene.watches.node_changed(replace(NODE, labels={"block": "b1"}))
    scene.inputs.topologies_changed((TopologyLabels("fabric", ("block",)),))
    assert scene.wakes == 2
    assert scene.planner.state.placements["uid-1"].domains == ("domain/fabric/b1",)


async def test_a_refused_record_counts_until_the_node_has_its_desired_marks(scene: Scene) -> None:
    def written(result: WriteResult, node: Node | None = None) -> ObservedMarks:
        refused = result == WriteResult.FAILED
        outcome = WriteOutcome(desired, result, "too long", node, 422 * refused, is_record_refused=refused)
        scene.backend._marks_written(outcome)
        return scene.planner.state.marks.observed("uid-1")

    desired = DesiredNode("uid-1", "gpu-1", cordon=False, record=RECORD)
    scene.watches.node_changed(NODE)
    tainted = replace(NODE, version="11", taints=(QUARANTINE,))
    # The watch may deliver the Node before the response does.
    scene.watches.node_changed(tainted)
    observed = written(WriteResult.FAILED, tainted)
    assert (observed.records.node, observed.foreign, observed.record_problem) == (RECORD, (), "too long")
    assert written(WriteResult.UNCHANGED).record_problem == ""


async def test_denials_of_two_nodes_count_together_only_if_both_last(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.watches.node_changed(NODE)
    for at, uid in ((1000.0, "uid-1"), (5000.0, "uid-2")):
        monkeypatch.setattr("nodeguard.aggregator.backends.kubernetes.monotonic", lambda at=at: at)
        denied = WriteOutcome(DesiredNode(uid, uid), WriteResult.FAILED, "denied", status=403)
        scene.backend._marks_written(denied)
        assert scene.backend.write_problem() is None


async def test_forbidden_writes_of_nodes_are_a_problem_until_one_succeeds(scene: Scene) -> None:
    desired = DesiredNode("uid-1", "gpu-1", cordon=False)

    def outcome(result: WriteResult, status: int = 0, uid: str = "uid-1", *, denied: bool = False) -> str:
        lacks_right = status == 403 and not denied
        of_node = replace(desired, uid=uid)
        written = WriteOutcome(of_node, result, "forbidden", status=status, lacks_right=lacks_right)
        scene.backend._marks_written(written)
        problem = scene.backend.write_problem()
        return problem.refusal if problem is not None else ""

    scene.watches.node_changed(NODE)
    assert outcome(WriteResult.FAILED, 409) == ""
    assert outcome(WriteResult.FAILED, 403) == "forbidden"
    first = scene.backend.write_problem()
    assert first is not None
    assert outcome(WriteResult.FAILED, 503) == "forbidden"
    assert outcome(WriteResult.FAILED, 403) == "forbidden"
    again = scene.backend.write_problem()
    assert again is not None
    assert again.since == first.since
    assert outcome(WriteResult.WRITTEN) == ""
    # An admission webhook that denies the writes of one Node may permit all others.
    assert outcome(WriteResult.FAILED, 403, denied=True) == ""
    assert outcome(WriteResult.FAILED, 403, denied=True) == ""
    assert outcome(WriteResult.FAILED, 403, "uid-2", denied=True) == "forbidden"
    assert outcome(WriteResult.WRITTEN, uid="uid-2") == ""
    assert outcome(WriteResult.FAILED, 403, denied=True) == ""
