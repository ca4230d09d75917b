"""The model of the API server answers random operations as a real one does."""

from __future__ import annotations

import json
import random
from typing import Any, Protocol

import pytest

from nodeguard.kube.action_object import action_body
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import define_actions
from tests.kube.model_api import NAMESPACE, PATH, ModelApi, Object

ACTIONS = [
    NodeAction(
        kind,
        "gpu-1",
        "uid-1",
        request,
        1_800_000_000,
        incident="i",
        findings=(FindingKey("gpu-lost", "node"),),
    )
    for kind in ActionKind
    for request in ("ann", "bob")
]

# An unknown field, and a value that the definition does not permit.
_UNKNOWN, _INVALID = {"unknown": "x"}, {"action": "Dance"}


class Server(Protocol):
    async def request(self, method: str, path: str, *, query: Any = None, body: Any = None) -> bytes: ...


class Client:
    """A client with the versions of objects that it saw last and before."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: dict[str, list[Object]] = {}

    async def send(self, method: str, path: str, query: Any = None, body: Any = None) -> tuple[int, Object]:
        """Return the status, 0 for success, and the parts of the object that clients write."""
        try:
            response: Object = json.loads(await self.server.request(method, path, query=query, body=body))
        except ApiError as error:
            return error.status, {}
        metadata = response.get("metadata", {})
        if "resourceVersion" in metadata:
            versions = self.seen.setdefault(metadata["name"], [])
            if metadata not in versions:
                versions.append(metadata)
        return 0, {key: response.get(key, {}) for key in ("kind", "spec", "status") if method != "DELETE"}

    def metadata(self, name: str, age: int) -> Object:
        """Return the metadata that was seen some versions ago; invalid ones if there was none."""
        versions = self.seen.get(name, [])
        if len(versions) <= age:
            return {"uid": "none", "resourceVersion": "1"}
        return {key: versions[-1 - age][key] for key in ("uid", "resourceVersion")}


async def operate(client: Client, random_source: random.Random) -> tuple[str, tuple[int, Object]]:
    """Do one random operation, the same for the same state of the source."""
    action = random_source.choice(ACTIONS)
    age = random_source.choice([0, 0, 0, 1, 2])
    is_strict, fault = random_source.random() < 0.7, random_source.random()
    state = random_source.choice([*ActionState])
    method = random_source.choice(["POST", "POST", "PUT", "PUT", "PUT", "GET", "DELETE"])
    path = f"{PATH}/{action.key}"
    query = {"fieldValidation": "Strict"} if is_strict else {"fieldValidation": "Ignore"}
    extra = _UNKNOWN if fault < 0.1 else _INVALID if fault < 0.2 else {}
    if method == "POST":
        body = action_body(action, NAMESPACE)
        body["spec"] |= extra
        return f"POST {is_strict} {extra}", await client.send("POST", PATH, query, body)
    metadata = client.metadata(action.key, age)
    if method == "PUT":
        body = action_body(action, NAMESPACE, metadata["resourceVersion"])
        body["status"] = {"state": state} | ({"state": "Dancing"} if fault < 0.1 else {})
        if 0.1 <= fault < 0.2:
            body["status"] |= _UNKNOWN
        if 0.2 <= fault < 0.3:
            del body["metadata"]["resourceVersion"]
        return f"PUT {age} {is_strict} {body['status']}", await client.send(
            "PUT", f"{path}/status", query, body
        )
    if method == "DELETE":
        return f"DELETE {age}", await client.send("DELETE", path, body={"preconditions": metadata})
    return "GET", await client.send("GET", path)


@pytest.mark.parametrize("seed", range(3))
async def test_the_model_answers_as_a_real_api_server(
    api: ApiClient, controlplane: Cluster, seed: int
) -> None:
    define_actions(controlplane)
    controlplane.api.delete(PATH)
    model, real = Client(ModelApi()), Client(api)
    sources = random.Random(seed), random.Random(seed)
    codes = set()
    for number in range(250):
        operation, expected = await operate(real, sources[0])
        assert (operation, expected) == await operate(model, sources[1]), f"operation {number}"
        codes.add(f"{operation.partition(' ')[0]} {expected[0]}")
    assert codes >= {
        *("POST 0", "POST 400", "POST 409", "POST 422"), *("PUT 0", "PUT 400", "PUT 404", "PUT 409", "PUT 422"),
        *("DELETE 0", "DELETE 404", "DELETE 409"), *("GET 0", "GET 404"),
    }  # fmt: skip
