from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.decision import NodeDecision
from nodeguard.model.device import Device
from nodeguard.model.inventory import NO_OBSERVED_MARKS, InventoryNode
from nodeguard.model.job import NodeJob
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause, MarkRecord, NodeMarks
from nodeguard.model.node import MAINTENANCE_IN_PROGRESS, MAINTENANCE_PLANNED, Node, NodeCondition, Taint
from nodeguard.model.policy import MarkWrites
from tests.fleet.cluster_planner import apply_desired

CAUSE = MarkCause(Mark.QUARANTINE, "gpu-lost", "gpu/0000:3b:00", "gpu", 10.0)
RECORD = MarkRecord((CAUSE,), Charge("gpu-lost", Mark.QUARANTINE, 10.0))
NODE = Node("gpu-1", "u1", taints=(Taint("nvidia.com/gpu", "NoSchedule", "present"),), gpus=8)
GPU = Device("gpu-1", "gpu.nvidia.com", "gpu-1", "gpu-0")
WRITES = MarkWrites()
MARKED = NodeDecision("u1", "gpu-1", NodeMarks(RECORD))
ON_DEVICE = NodeDecision("u1", "gpu-1", NodeMarks(devices={GPU: RECORD}))
UNMARKED = NodeDecision("u1", "gpu-1", NodeMarks())


@pytest.fixture
def cluster() -> ObservedCluster:
    made = ObservedCluster()
    made.update_node(NODE)
    return made


def carry_out(cluster: ObservedCluster, decision: NodeDecision, writes: MarkWrites = WRITES) -> None:
    wanted = cluster.writes((decision,), writes)
    for desired in wanted.nodes:
        cluster.update_node(apply_desired(cluster.nodes[desired.uid], desired))
    for rule in wanted.rules:
        cluster.update_rule(rule)
    for name in wanted.rules_gone:
        cluster.remove_rule(name)


@pytest.mark.parametrize("decision", [MARKED, ON_DEVICE])
def test_a_decision_is_carried_once_it_is_written(cluster: ObservedCluster, decision: NodeDecision) -> None:
    for wanted in (decision, UNMARKED):
        assert not cluster.carries(wanted, WRITES)
        carry_out(cluster, wanted)
        assert cluster.carries(wanted, WRITES)
        assert not cluster.writes((wanted,), WRITES)
        assert cluster.observed("u1").records == wanted.records


@pytest.mark.parametrize(
    "change",
    [
        {"taints": ()},
        {"taints": (Taint(Mark.QUARANTINE.key, "NoSchedule", "other"),)},
        {"annotations": {}},
        {"condition": NodeCondition("True", "Healthy")},
    ],
)
def test_a_decision_is_not_carried_after_another_client_has_changed_the_node(
    cluster: ObservedCluster, change: dict[str, object]
) -> None:
    carry_out(cluster, MARKED)
    cluster.update_node(replace(cluster.nodes["u1"], **change))
    assert not cluster.carries(MARKED, WRITES)


def test_a_rule_that_is_being_created_is_removed_with_its_decision(cluster: ObservedCluster) -> None:
    writes = cluster.writes((ON_DEVICE,), WRITES)
    cluster.record_issued(writes)
    assert not cluster.carries(UNMARKED, WRITES)
    assert cluster.writes((UNMARKED,), WRITES).rules_gone == (writes.rules[0].name,)
    cluster.drop_issued()
    assert cluster.carries(UNMARKED, WRITES)


def test_a_rule_without_its_node_is_removed_and_one_with_an_edited_record_stays(
    cluster: ObservedCluster,
) -> None:
    [rule] = cluster.writes((ON_DEVICE,), WRITES).rules
    cluster.update_rule(replace(rule, state="edited"))
    assert cluster.carries(UNMARKED, WRITES)
    assert not cluster.writes((UNMARKED,), WRITES)
    cluster.remove_node("u1")
    assert cluster.writes((), WRITES).rules_gone == (rule.name,)


def test_a_node_in_the_terms_of_no_scheduler() -> None:
    annotations = {
        "nodeguard.dev/hold": "alice",
        "nodeguard.dev/maintenance": "",
        "nodeguard.dev/job": "4711",
    }
    node, observed = ObservedCluster().update_node(
        replace(NODE, labels={"rack": "r1"}, annotations=annotations, unschedulable=True)
    )
    assert observed == NO_OBSERVED_MARKS
    assert node == InventoryNode(
        "u1", "gpu-1", {"rack": "r1"}, 8, out_by_operator=True, hold="alice",
        maintenance="annotation nodeguard.dev/maintenance", job=NodeJob("4711"),
    )  # fmt: skip
    both = frozenset({MAINTENANCE_IN_PROGRESS, MAINTENANCE_PLANNED})
    node, _ = ObservedCluster().update_node(replace(NODE, maintenance_conditions=both))
    assert node.maintenance == "condition MaintenanceInProgress is True"
    assert node.planned_maintenance == "condition MaintenancePlanned is True"


def test_a_taint_with_another_effect_is_present_and_not_in_effect() -> None:
    taints = (
        Taint(Mark.QUARANTINE.key, "PreferNoSchedule", "gpu"),
        Taint("nodeguard.dev/drill", "NoSchedule"),
    )
    _, observed = ObservedCluster().update_node(replace(NODE, taints=taints))
    assert (observed.present, observed.in_effect) == (frozenset({Mark.QUARANTINE}), frozenset())
    assert observed.foreign == ("nodeguard.dev/quarantine=gpu", "nodeguard.dev/drill=")


def test_the_owner_of_a_cordon_is_in_the_annotation_only(cluster: ObservedCluster) -> None:
    carry_out(cluster, MARKED, MarkWrites(cordon=True))
    node = cluster.nodes["u1"]
    assert node.annotations[STATE_ANNOTATION] == encode_record(replace(RECORD, cordoned=True))
    in_fleet, observed = cluster.update_node(node)
    assert (in_fleet.out_by_operator, observed.is_out, observed.records.node) == (False, True, RECORD)
    in_fleet, observed = cluster.update_node(replace(node, unschedulable=False))
    assert (in_fleet.out_by_operator, observed.is_out) == (False, False)


def test_the_cordon_is_an_operators_once_the_record_is_gone(cluster: ObservedCluster) -> None:
    carry_out(cluster, MARKED, MarkWrites(cordon=True))
    in_fleet, observed = cluster.update_node(replace(cluster.nodes["u1"], annotations={}))
    assert (in_fleet.out_by_operator, observed.is_out) == (True, False)


@pytest.mark.parametrize("annotations", [{}, {STATE_ANNOTATION: ""}, {STATE_ANNOTATION: "{"}])
def test_a_record_that_another_client_removes_stays_with_its_taint(
    cluster: ObservedCluster, annotations: dict[str, str]
) -> None:
    carry_out(cluster, MARKED)
    marked = cluster.nodes["u1"]
    _, observed = cluster.update_node(replace(marked, annotations=annotations))
    assert (observed.records.node, observed.foreign) == (RECORD, ())
    # It is written again; the taint is removed with it if the fault ends before that.
    carry_out(cluster, MARKED)
    assert cluster.nodes["u1"] == marked
    cluster.update_node(replace(marked, annotations=annotations))
    carry_out(cluster, UNMARKED)
    assert (cluster.nodes["u1"].taints, cluster.carries(UNMARKED, WRITES)) == (NODE.taints, True)


def test_a_record_that_is_removed_with_its_taint_is_gone(cluster: ObservedCluster) -> None:
    carry_out(cluster, MARKED)
    theirs = Taint(Mark.QUARANTINE.key, "NoExecute", "gpu")
    _, observed = cluster.update_node(replace(cluster.nodes["u1"], annotations={}, taints=(theirs,)))
    assert observed.records.node == MarkRecord()
    # A taint that another client sets later is not nodeguard's.
    again = Taint(Mark.QUARANTINE.key, "NoSchedule", "gpu")
    _, observed = cluster.update_node(replace(cluster.nodes["u1"], taints=(again,)))
    assert (observed.records.node, observed.foreign) == (MarkRecord(), ("nodeguard.dev/quarantine=gpu",))


SUSPECT = MarkRecord((replace(CAUSE, mark=Mark.SUSPECT),), Charge("gpu-lost", Mark.SUSPECT, 10.0))


@pytest.mark.parametrize("earlier", [UNMARKED, NodeDecision("u1", "gpu-1", NodeMarks(SUSPECT))])
def test_a_record_that_is_refused_stays_with_its_taint(
    cluster: ObservedCluster, earlier: NodeDecision
) -> None:
    carry_out(cluster, earlier)
    before = cluster.nodes["u1"]
    [desired] = cluster.writes((MARKED,), WRITES).nodes
    tainted = replace(before, taints=(*NODE.taints, *desired.taints))
    # The watch may deliver the Node before the response does.
    cluster.update_node(tainted)
    cluster.record_refused("u1", desired.record, "too long")
    _, observed = cluster.update_node(tainted)
    assert (observed.records.node, observed.foreign, observed.record_problem) == (RECORD, (), "too long")
    assert not cluster.carries(MARKED, WRITES)
    [removal] = cluster.removal().nodes
    assert removal.taints == ()
    carry_out(cluster, UNMARKED)
    assert (cluster.nodes["u1"].taints, cluster.observed("u1").record_problem) == (NODE.taints, "")


def test_a_refused_cause_that_ended_is_observed_no_more(cluster: ObservedCluster) -> None:
    carry_out(cluster, MARKED)
    before = cluster.nodes["u1"]
    second = replace(CAUSE, check="gpu-ecc")
    both = NodeDecision("u1", "gpu-1", NodeMarks(replace(RECORD, causes=(CAUSE, second))))
    [desired] = cluster.writes((both,), WRITES).nodes
    assert desired.taints == before.taints[-1:]
    cluster.record_refused("u1", desired.record, "too long")
    cluster.update_node(before)
    assert cluster.observed("u1").records.node.causes == (CAUSE, second)
    # The annotation is right again, so that nothing is to write: the outcome of the write ends the refusal.
    assert not cluster.carries(MARKED, WRITES)
    assert [node.record for node in cluster.writes((MARKED,), WRITES).nodes] == [RECORD]
    assert cluster.record_accepted("u1")
    assert not cluster.record_accepted("u1")
    observed = cluster.observe_again("u1")
    assert (observed.records.node, observed.record_problem) == (RECORD, "")
    assert cluster.carries(MARKED, WRITES)


def test_a_record_that_is_stored_after_all_has_no_problem(cluster: ObservedCluster) -> None:
    cluster.record_refused("u1", RECORD, "too long")
    carry_out(cluster, MARKED)
    assert (cluster.observed("u1").records.node, cluster.observed("u1").record_problem) == (RECORD, "")


def test_a_removal_leaves_what_others_set(cluster: ObservedCluster) -> None:
    carry_out(cluster, MARKED)
    theirs = Taint("nodeguard.dev/drill", "NoSchedule")
    node = cluster.nodes["u1"]
    cluster.update_node(replace(node, taints=(*node.taints, theirs)))
    cluster.update_rule(DeviceRule("r", "gpu-1", "u1", "d", "p", "n", theirs))
    writes = cluster.removal()
    [desired] = writes.nodes
    assert (desired.taints, desired.state, desired.condition) == ((theirs,), "", NodeCondition("", ""))
    assert writes.rules_gone == ("r",)
