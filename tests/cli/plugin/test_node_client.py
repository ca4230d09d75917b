"""Nodes that the plug-in reads from the objects of a cluster, from the answers of an API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import pytest

from nodeguard.cli.aggregator_client import NotFoundError
from nodeguard.cli.plugin import node_client
from nodeguard.cli.plugin.node_client import NodeClient
from nodeguard.cli.plugin.options import ClusterOptions
from nodeguard.cli.usage import UsageError
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.fleet_api.schema.domain import DomainList
from nodeguard.fleet_api.schema.node import NodeList, NodeView
from nodeguard.fleet_api.schema.unreported import UnreportedList, UnreportedNode
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.model.mark import STATE_ANNOTATION, AcceptedMarks, Mark, MarkCause, MarkRecord

pytestmark = pytest.mark.slow  # imports the client of Kubernetes

_T = TypeVar("_T")

CAUSE = MarkCause(Mark.QUARANTINE, "gpu-lost", "gpu/0000:3b:00", "gpu", 1_700_000_000.0)
TAINT = {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"}
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"


def node(name: str, record: MarkRecord | None = None, *, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    state = {STATE_ANNOTATION: encode_record(record)} if record is not None else {}
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "annotations": state,
    }
    return {"metadata": metadata, "spec": spec, "status": {"capacity": {"nvidia.com/gpu": str(gpus)}}}


def rule(of: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "a-rule", "uid": "r", "resourceVersion": "1",
            "annotations": {STATE_ANNOTATION: encode_record(MarkRecord((CAUSE,)))},
            "ownerReferences": [{"kind": "Node", "name": of, "uid": f"uid-{of}"}],
        },
        "spec": {"taint": TAINT, "deviceSelector": {"driver": "gpu.nvidia.com", "pool": of, "device": "gpu-0"}},
    }  # fmt: skip


class Server:
    """Answers with objects. refused: statuses by path."""

    def __init__(
        self, *nodes: Mapping[str, Any], rules: tuple[Any, ...] = (), refused: Mapping[str, int] | None = None
    ) -> None:
        self._lists: dict[str, list[Any]] = {
            "/api/v1/nodes": list(nodes), RULES: list(rules), "/apis/nodeguard.dev/v1alpha1/nodeincidents": [],
        }  # fmt: skip
        self._refused = refused or {}

    async def request(self, method: str, path: str, **_: object) -> bytes:
        if method == "POST":
            return json.dumps({"status": {"allowed": False}}).encode()
        path = path.partition("?")[0]
        if path in self._refused:
            raise ApiError(self._refused[path], "Refused", "refused")
        if path in self._lists:
            return json.dumps({"metadata": {"resourceVersion": "1"}, "items": self._lists[path]}).encode()
        parent, name = path.rsplit("/", 1)
        for item in self._lists[parent]:
            if item["metadata"]["name"] == name:
                return json.dumps(item).encode()
        raise ApiError(404, "NotFound", "not found")


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], NodeClient]:
    def connected(server: Server) -> NodeClient:
        def ask(_: ClusterOptions, query: Callable[[ApiClient], Awaitable[_T]]) -> _T:
            async def answer() -> _T:
                return await query(cast("ApiClient", server))

            return asyncio.run(answer())

        monkeypatch.setattr(node_client, "ask", ask)
        return NodeClient(ClusterOptions())

    return connected


Connect = Callable[[Server], NodeClient]


def listed(client: NodeClient, query: str = "") -> UnreportedList:
    nodes = client.get(f"nodes{query}", NodeList)
    assert isinstance(nodes, UnreportedList)
    return nodes


@pytest.mark.parametrize(
    ("record", "spec"),
    [
        (MarkRecord((CAUSE,)), {"taints": [TAINT]}),
        (MarkRecord((CAUSE,), cordoned=True), {"unschedulable": True}),
        (MarkRecord((CAUSE,), accepted=AcceptedMarks("ops", ("quarantine",))), {}),
    ],
    ids=["taint", "cordon of a policy that is not read", "webhook that owns the node"],
)
def test_a_mark_is_in_effect_whatever_the_policy_writes(
    connect: Connect, record: MarkRecord, spec: dict[str, Any]
) -> None:
    client = connect(Server(node("gpu-7", record, **spec), node("gpu-8")))
    assert [(item.node, item.work, item.marks) for item in listed(client).nodes] == [
        ("gpu-7", "marked", ("quarantine",)), ("gpu-8", "unknown", ()),
    ]  # fmt: skip
    described = client.get("nodes/gpu-7", NodeView)
    assert [mark.written for mark in described.marks] == [True]


def test_a_record_without_its_taint_keeps_no_work_away(connect: Connect) -> None:
    client = connect(Server(node("gpu-7", MarkRecord((CAUSE,)))))
    assert [(item.work, item.marks) for item in listed(client).nodes] == [("unknown", ())]


def test_the_marks_of_gpus_are_those_of_device_rules(connect: Connect) -> None:
    for status, marks in ((0, ["gpu-0"]), (404, []), (403, [])):
        server = Server(node("gpu-7"), rules=(rule("gpu-7"),), refused={RULES: status} if status else None)
        described = connect(server).get("nodes/gpu-7", NodeView)
        assert isinstance(described, UnreportedNode)
        assert [mark.device for mark in described.marks] == marks
        assert ("marks of GPUs" in described.not_read) == (status == 403)


def test_labels_select_nodes(connect: Connect) -> None:
    other = node("gpu-8")
    other["metadata"]["labels"] = {"pool": "a"}
    client = connect(Server(node("gpu-7"), other, node("cpu-1", gpus=0)))
    assert [item.node for item in listed(client).nodes] == ["gpu-7", "gpu-8"]
    assert [item.node for item in listed(client, "?selector=pool%3Da").nodes] == ["gpu-8"]
    with pytest.raises(UsageError, match="selector"):
        listed(client, "?selector=a%20b")


def test_what_is_not_there_or_not_readable_is_an_error(connect: Connect) -> None:
    client = connect(Server(node("gpu-7")))
    for name in ("gpu-8", "..%2Fpods", "GPU"):
        with pytest.raises(NotFoundError, match="there is no node"):
            client.get(f"nodes/{name}", NodeView)
    with pytest.raises(UsageError, match="no right to run commands in pods"):
        client.get("domains?all=yes", DomainList)
    refusing = connect(Server(refused={"/api/v1/nodes": 403}))
    with pytest.raises(UsageError, match="no right to read Nodes: the ClusterRole nodeguard-viewer gives it"):
        listed(refusing)


def test_the_condition_is_shown_within_the_limit_of_its_message(connect: Connect) -> None:
    item = node("gpu-7")
    long = {"type": "NodeguardHealthy", "status": "False", "reason": "GPUFault", "message": "x" * 5000}
    item["status"]["conditions"] = [long]
    described = connect(Server(item)).get("nodes/gpu-7", NodeView)
    assert isinstance(described, UnreportedNode)
    assert described.condition == f"NodeguardHealthy is False, GPUFault: {'x' * 1024}"
