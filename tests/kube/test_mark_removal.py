"""Removal of all marks without an aggregator: nothing of nodeguard is left, and nothing of others is changed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes import LEASE_NAME
from nodeguard.aggregator.mark_removal import RemovalFailedError, remove_marks
from nodeguard.kube import watch
from nodeguard.kube.client import MERGE_PATCH, ApiClient, ApiError
from nodeguard.kube.incident_object import decode_incident, new_object, status_patch
from nodeguard.kube.incident_projection import incident_status, to_incident
from nodeguard.kube.incident_writer import PATH
from nodeguard.kube.lease import MAX_DURATION, Lease
from nodeguard.kube.lease_record import LEASE_SECONDS
from nodeguard.kube.mark_removal import MarkRemovalError, RemovedMarks, remove_all_marks
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import define_incidents
from tests.controlplane.objects import node
from tests.kube.incident_writing import LOST, objects

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"

FOREIGN_TAINT = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}
TAINTS = [
    FOREIGN_TAINT,
    {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"},
]
RECORD = (
    '{"causes":[{"mark":"quarantine","check":"gpu-lost","target":"gpu/0000:3b:00","fault_class":"gpu",'
    '"since":1.0}],"charge":{"check":"gpu-lost","mark":"quarantine","at":1.0},"cordoned":true}'
)
ANNOTATIONS = {
    "example.com/mine": "x",
    "nodeguard.dev/hold": "by ada",
    "nodeguard.dev/state": RECORD,
    "nodeguard.dev/epoch": "4",
}
DRAINED = {"type": "Drained", "status": "True", "reason": "NodeguardDrained", "message": "test"}
CONDITION = {"type": "NodeguardHealthy", "status": "False", "reason": "Quarantined", "message": "test"}


class Sleeper:
    """Records the waits, and does not wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


async def test_a_list_that_expires_during_the_removal_is_started_again(
    near_api: ApiClient, api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_PAGE", 2)
    names = tuple(f"node-{number}" for number in range(5))
    for name in names:
        mark(api_server, name)
    request, expired = near_api.request, list[str]()

    async def request_page(*args: Any, **kwargs: Any) -> bytes:
        if "continue" in (kwargs.get("query") or {}) and not expired:
            expired.append("")
            raise ApiError(410, "Expired", "the continue token is too old")
        return await request(*args, **kwargs)

    monkeypatch.setattr(near_api, "request", request_page)
    removed = await remove_all_marks(near_api, lease(near_api), Sleeper())
    assert expired
    assert (removed.nodes, len(removed.rules)) == (names, 5)


@pytest_asyncio.fixture
async def near_api(api_server: Cluster) -> AsyncIterator[ApiClient]:
    for path in (LEASES, RULES):
        api_server.api.delete(path)
    client = await ApiClient.connect(str(api_server.kubeconfig))
    yield client
    await client.close()


def lease(api: ApiClient, name: str = "remover", duration: int = MAX_DURATION) -> Lease:
    return Lease(api, "default", "nodeguard", name, duration)


def mark(control: Cluster, name: str) -> None:
    """Create a Node with all that nodeguard writes, and with fields of others."""
    created = control.api.post("/api/v1/nodes", node(name))
    path = f"/api/v1/nodes/{name}"
    control.api.patch(
        path, {"metadata": {"annotations": ANNOTATIONS}, "spec": {"taints": TAINTS, "unschedulable": True}}
    )
    control.api.patch(f"{path}/status", {"status": {"conditions": [CONDITION, DRAINED]}}, "strategic-merge")
    rule: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": f"{name}-gpu-0",
            "labels": {"app.kubernetes.io/managed-by": "nodeguard"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": created["metadata"]["uid"]}
            ],
        },
        "spec": {
            "deviceSelector": {"driver": "gpu.nvidia.com", "pool": name, "device": "gpu-0"},
            "taint": {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"},
        },
    }
    control.api.post(RULES, rule)


def fields(control: Cluster, name: str) -> tuple[Any, ...]:
    """Return the taints, annotations, cordon and own condition of a Node."""
    found = control.api.get(f"/api/v1/nodes/{name}")
    spec = found["spec"]
    taints = [taint["key"] for taint in spec.get("taints", []) if not taint["key"].startswith("node.kub")]
    conditions = [item["type"] for item in found["status"]["conditions"]]
    return taints, found["metadata"].get("annotations", {}), spec.get("unschedulable", False), conditions


def holder(control: Cluster, name: str = "nodeguard") -> str:
    return str(control.api.get(f"{LEASES}/{name}")["spec"]["holderIdentity"])


async def test_all_marks_are_removed_and_nothing_else(near_api: ApiClient, api_server: Cluster) -> None:
    mark(api_server, "node-1")
    mark(api_server, "node-2")
    api_server.api.post("/api/v1/nodes", node("clean"))
    before = api_server.api.get("/api/v1/nodes/clean")["metadata"]["resourceVersion"]
    sleeper = Sleeper()
    removed = await remove_all_marks(near_api, lease(near_api), sleeper)
    assert removed == RemovedMarks(("node-1", "node-2"), ("node-1-gpu-0", "node-2-gpu-0"))
    for name in ("node-1", "node-2"):
        annotations = {"example.com/mine": "x", "nodeguard.dev/hold": "by ada"}
        assert fields(api_server, name) == ([FOREIGN_TAINT["key"]], annotations, False, ["Ready"])
    assert api_server.api.get(RULES)["items"] == []
    assert api_server.api.get("/api/v1/nodes/clean")["metadata"]["resourceVersion"] == before
    # No aggregator held the lease, so only the check of the result has to wait.
    assert len(sleeper.waits) == 1


async def test_no_incident_stays_marked(near_api: ApiClient, api_server: Cluster) -> None:
    define_incidents(api_server)
    states = (IncidentState.MARKED, IncidentState.RECOVERING, IncidentState.DRY_RUN)
    for state in states:
        incident = replace(LOST, name=f"of-{state.slug}", state=state, mark=Mark.QUARANTINE)
        await near_api.request("POST", PATH, body=new_object(incident.name))
        body = status_patch(incident_status(incident))
        await near_api.request("PATCH", f"{PATH}/{incident.name}/status", body=body, content_type=MERGE_PATCH)
    before = (await objects(near_api))["of-dry-run"]
    await remove_all_marks(near_api, lease(near_api), Sleeper())
    after = await objects(near_api)
    assert after.pop("of-dry-run") == before
    shown = {name: (item["status"]["state"], marked_condition(item)) for name, item in after.items()}
    removed = "all marks were removed, without an aggregator"
    assert shown == {
        "of-marked": ("Withheld", ("False", f"Node gpu-7 is not marked: {removed}.")),
        "of-recovering": ("Resolved", ("False", f"No mark: {removed}.")),
    }
    assert all("mark" not in item["status"] for item in after.values())
    assert after["of-recovering"]["status"]["resolvedAt"]
    # An aggregator of the next installation restores them.
    assert all(to_incident(decode_incident(json.dumps(item).encode())) for item in after.values())


def marked_condition(incident: Object) -> tuple[str, str]:
    [marked] = [item for item in incident["status"]["conditions"] if item["type"] == "Marked"]
    return marked["status"], marked["message"]


async def test_taints_that_others_set_under_the_prefix_stay(near_api: ApiClient, api_server: Cluster) -> None:
    mark(api_server, "node-1")
    theirs = [
        {"key": "nodeguard.dev/quarantine", "value": "x", "effect": "PreferNoSchedule"},
        {"key": "nodeguard.dev/site", "effect": "NoSchedule"},
    ]
    api_server.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": [*TAINTS, *theirs]}})
    api_server.api.post("/api/v1/nodes", node("node-2"))
    api_server.api.patch("/api/v1/nodes/node-2", {"spec": {"taints": TAINTS}})
    removed = await remove_all_marks(near_api, lease(near_api), Sleeper())
    assert removed == RemovedMarks(("node-1",), ("node-1-gpu-0",), foreign=("node-1", "node-2"))
    taints, annotations, _, _ = fields(api_server, "node-1")
    assert taints == [FOREIGN_TAINT["key"], *(taint["key"] for taint in theirs)]
    assert "nodeguard.dev/epoch" not in annotations
    assert fields(api_server, "node-2")[0] == [taint["key"] for taint in TAINTS]


async def test_without_marks_nothing_is_written(near_api: ApiClient, api_server: Cluster) -> None:
    api_server.api.post("/api/v1/nodes", node("clean"))
    sleeper = Sleeper()
    assert await remove_all_marks(near_api, lease(near_api), sleeper) == RemovedMarks((), ())
    assert sleeper.waits == []


async def test_a_running_aggregator_stops_before_marks_are_removed(
    near_api: ApiClient, api_server: Cluster
) -> None:
    aggregator, standby = lease(near_api, "one", LEASE_SECONDS), lease(near_api, "two", LEASE_SECONDS)
    assert await aggregator.renew(100.0)
    sleeper = Sleeper()
    await remove_all_marks(near_api, lease(near_api), sleeper)
    assert sleeper.waits[0] == LEASE_SECONDS
    await aggregator.renew(104.0)  # it finds that its lease has changed
    for candidate in (aggregator, standby):
        for now in (105.0, 104.0 + MAX_DURATION):
            assert not await candidate.renew(now)
    # If Helm fails to delete them, the aggregators continue after this time.
    assert await standby.renew(105.0 + MAX_DURATION + 3.0)
    assert standby.epoch > aggregator.epoch


async def test_the_lease_is_held_for_the_whole_removal(
    near_api: ApiClient, api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.kube.mark_removal._RENEW_AFTER", 2)
    for number in range(5):
        mark(api_server, f"node-{number}")
    await remove_all_marks(near_api, lease(near_api), Sleeper())
    # At the start, after two and four Nodes, and after both rounds.
    assert api_server.api.get(f"{LEASES}/nodeguard")["spec"]["leaseTransitions"] == 5


async def test_marks_that_return_are_an_error(near_api: ApiClient, api_server: Cluster) -> None:
    mark(api_server, "node-1")

    async def mark_again(_: float) -> None:
        patch = {"metadata": {"annotations": ANNOTATIONS}, "spec": {"taints": TAINTS}}
        api_server.api.patch("/api/v1/nodes/node-1", patch)

    with pytest.raises(MarkRemovalError, match="marks return"):
        await remove_all_marks(near_api, lease(near_api), mark_again)
    assert holder(api_server) == ""


async def test_aggregators_continue_at_once_after_a_removal_that_is_stopped(
    near_api: ApiClient, api_server: Cluster
) -> None:
    mark(api_server, "node-1")
    is_waiting = asyncio.Event()

    async def wait(_: float) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    removal = asyncio.create_task(remove_all_marks(near_api, lease(near_api), wait))
    await is_waiting.wait()
    assert holder(api_server).startswith("remover_")
    removal.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removal
    assert holder(api_server) == ""
    assert await lease(near_api, "one", LEASE_SECONDS).renew(100.0)


async def test_sigterm_releases_the_lease(near_api: ApiClient, api_server: Cluster, tmp_path: Path) -> None:
    aggregator = Lease(near_api, "default", LEASE_NAME, "one")
    await aggregator.renew(100.0)
    process = subprocess.Popen(
        [sys.executable, "-m", "nodeguard", "unmark", "--all", "--yes", "--without-aggregator"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KUBECONFIG": str(api_server.kubeconfig),
            "POD_NAMESPACE": "default",
            "POD_NAME": "remover",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    # It waits until the writes of the aggregator have ended.
    await asyncio.to_thread(
        api_server.until, lambda: holder(api_server, LEASE_NAME).startswith("remover_"), "kube-apiserver"
    )
    process.terminate()
    _, errors = await asyncio.to_thread(process.communicate)
    assert "marks may be left: the command was stopped" in errors
    assert (process.returncode, holder(api_server, LEASE_NAME)) == (3, "")


async def test_without_the_namespace_of_the_lease_it_names_what_to_do(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "gone")
    with pytest.raises(
        RemovalFailedError, match=r"no namespace gone .* kubectl create namespace gone, and run"
    ):
        await remove_marks(str(api_server.kubeconfig))
