"""The removal of one Node's marks on an operator's request, on real Nodes."""

from __future__ import annotations

import pytest

from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.unmark import unmark_node
from nodeguard.model.mark import (
    EPOCH_ANNOTATION,
    HOLD_ANNOTATION,
    STATE_ANNOTATION,
    Charge,
    Mark,
    MarkCause,
    MarkRecord,
)
from nodeguard.model.node import NodeCondition, Taint
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.kube.writing import QUARANTINE, desired, read, writing

NODES = "/api/v1/nodes"
MINE = Taint("example.com/mine", "NoSchedule", "x")
HOLD = "unmarked by ada"


@pytest.fixture
def name(controlplane: Cluster) -> str:
    """Create a Node with an operator's taint, and wait until the controllers have removed theirs."""
    controlplane.api.post(NODES, node("gpu-0"))
    controlplane.until(
        lambda: not controlplane.api.get(f"{NODES}/gpu-0")["spec"].get("taints"), "kube-controller-manager"
    )
    taint = {"key": MINE.key, "effect": MINE.effect, "value": MINE.value}
    controlplane.api.patch(f"{NODES}/gpu-0", {"spec": {"taints": [taint]}})
    return "gpu-0"


async def mark(api: ApiClient, name: str) -> None:
    cause = MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu", 1.0)
    record = MarkRecord((cause,), Charge("gpu-lost", Mark.QUARANTINE, 1.0), cordoned=True)
    state, condition = encode_record(record), NodeCondition("False", "Quarantined", "a fault")
    async with writing(api) as writers:
        before = await read(api, name)
        writers.executor.set_desired(
            desired(before, QUARANTINE, state=state, cordon=True, condition=condition)
        )
        await writers.idle()
    marked = await read(api, name)
    assert QUARANTINE in marked.taints
    assert marked.unschedulable
    assert marked.condition is not None


async def test_the_marks_of_a_node_are_removed_and_it_is_held(api: ApiClient, name: str) -> None:
    await mark(api, name)
    await unmark_node(api, name, ["no-such-rule"], HOLD)
    after = await read(api, name)
    assert (after.annotations, after.unschedulable, after.condition) == ({HOLD_ANNOTATION: HOLD}, False, None)
    assert MINE in after.taints
    assert QUARANTINE not in after.taints
    async with writing(api) as writers:
        writers.executor.set_desired(desired(after, QUARANTINE))
        await writers.idle()
    assert QUARANTINE not in (await read(api, name)).taints


async def test_an_operators_cordon_and_hold_stay(api: ApiClient, name: str) -> None:
    mine = {"metadata": {"annotations": {HOLD_ANNOTATION: "mine"}}, "spec": {"unschedulable": True}}
    await api.request("PATCH", f"{NODES}/{name}", body=mine, content_type=MERGE_PATCH)
    await unmark_node(api, name, [], HOLD)
    after = await read(api, name)
    assert (after.annotations, after.unschedulable) == ({HOLD_ANNOTATION: "mine"}, True)
    assert not {STATE_ANNOTATION, EPOCH_ANNOTATION} & after.annotations.keys()


async def test_a_taint_of_which_the_record_was_refused_is_removed_with_that_record(
    api: ApiClient, name: str
) -> None:
    cause = MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu", 1.0)
    record = MarkRecord((cause,), Charge("gpu-lost", Mark.QUARANTINE, 1.0))
    before = await read(api, name)
    taints = [
        {"key": taint.key, "effect": taint.effect, "value": taint.value} for taint in (MINE, QUARANTINE)
    ]
    await api.request("PATCH", f"{NODES}/{name}", body={"spec": {"taints": taints}}, content_type=MERGE_PATCH)
    assert QUARANTINE in await unmark_node(api, name, [], HOLD)
    assert QUARANTINE not in await unmark_node(api, name, [], HOLD, record)
    assert (await read(api, name)).taints == before.taints


async def test_a_missing_node_is_an_error(api: ApiClient, name: str) -> None:
    with pytest.raises(ApiError, match="gpu-77"):
        await unmark_node(api, "gpu-77", [], HOLD)
