from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.kube.action_object import action_body, decode_action
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.pod import PodGroupKey, PodKey

CLEAR = NodeAction(
    ActionKind.CLEAR, "gpu-1", "uid-1", "ann at 2027-01-15T08:00:00Z", 1_800_000_000, incident="gpu-1-gpu-lost",
    occurrence=3, attempt=2, deadline=1_800_003_600, findings=(FindingKey("gpu-lost", "gpu/0000:3b:00"),),
)  # fmt: skip
DETACH = NodeAction(
    ActionKind.DETACH_GPUS, "gpu-1", "uid-1", "ann", 1_800_000_000, gpus=("gpu/0000:3b:00",), seconds=1800
)

DRAIN = NodeAction(
    ActionKind.DRAIN, "gpu-1", "uid-1", "GPU-614b since 2027-01-15T08:00:00Z", 1_800_000_000,
    incident="gpu-1-gpu-lost",
    pods=(PodKey("team-a", "train-0", "uid-7", "team-a/train"), PodKey("team-b", "train-0", "uid-8")), pod_groups=(PodGroupKey("team-a", "train"),),
)  # fmt: skip


def stored(action: NodeAction, spec: Mapping[str, object] = {}) -> Any:
    body = action_body(action, "nodeguard", "7")
    body["spec"] |= spec
    body["metadata"] |= {"uid": "u", "resourceVersion": "8"}
    return decode_action(msgspec.json.encode(body))


@pytest.mark.parametrize("action", [CLEAR, DETACH, DRAIN])
@pytest.mark.parametrize("state", ActionState)
def test_an_action_is_read_as_it_was_written(action: NodeAction, state: ActionState) -> None:
    began_at = 1_800_000_050 if action.kind == ActionKind.DRAIN else 0
    running = replace(
        action,
        state=state,
        carried_out=1,
        message="done",
        remaining=("uid-8",) if action.kind == ActionKind.DRAIN else (),
        begun_at=began_at,
        released_at=began_at and began_at + 60,
        taken_over_at=began_at and began_at + 30,
        changed_at=1_800_000_100,
    )
    observed = stored(running)
    assert (observed.name, observed.uid, observed.version) == (action.key, "u", "8")
    assert observed.action == running


def test_only_an_object_is_an_action() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_action(b'{"kind": "Status", "metadata": {}, "spec": 7}')


def test_a_new_object_has_no_status() -> None:
    body = action_body(CLEAR, "nodeguard")
    assert "status" not in body
    body["metadata"] |= {"uid": "u", "resourceVersion": "8"}
    assert decode_action(msgspec.json.encode(body)).action == CLEAR


@pytest.mark.parametrize(
    "spec",
    [{"action": "Reboot"}, {"request": "bob"}, {"attempt": 3}, {"findings": []}, {"findings": {}}],
    ids=["another kind", "another name", "another attempt", "nothing to do", "another type"],
)
def test_an_action_that_this_version_did_not_write_is_not_carried_on(spec: dict[str, object]) -> None:
    assert stored(CLEAR, spec).action is None


@pytest.mark.parametrize("spec", [{"action": "Reboot"}, {"pods": []}, {"pods": None}, {"request": "bob"}])
def test_a_drain_without_pods_or_of_another_version_is_not_carried_on(spec: dict[str, object]) -> None:
    assert stored(DRAIN, spec).action is None
