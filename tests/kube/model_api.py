"""A model of the API server for NodeActions: what it answers to a create, a replaced status, a read and a delete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from nodeguard.kube.action_object import ActionSpec, ActionStatus
from nodeguard.kube.action_store import actions_path
from nodeguard.kube.errors import ApiError
from nodeguard.model.action import ActionKind, ActionState

Object = dict[str, Any]

NAMESPACE = "default"
PATH = actions_path(NAMESPACE)

_SPEC = {field.encode_name for field in msgspec.structs.fields(ActionSpec)}
_STATUS = {field.encode_name for field in msgspec.structs.fields(ActionStatus)}
_REQUIRED = {field.encode_name for field in msgspec.structs.fields(ActionSpec) if field.required}


class ModelApi:
    """Objects by name, and the history of changes for watches: the type and the object. created: how often
    each name was created.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[str, Object]] = []
        self.created: dict[str, int] = {}
        self._version = 1000

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Any = None,
        timeout: float = 0.0,
    ) -> bytes:
        """Answer as the API server. Raises ApiError."""
        name, _, subresource = path.removeprefix(PATH).strip("/").partition("/")
        is_strict = (query or {}).get("fieldValidation") == "Strict"
        body = None if body is None else json.loads(msgspec.json.encode(body))
        # The decoding comes before everything else.
        if is_strict and not (body["spec"].keys() <= _SPEC and body.get("status", {}).keys() <= _STATUS):
            raise ApiError(400, "BadRequest", "strict decoding error: unknown field")
        match method:
            case "POST":
                response = self._create(body)
            case "PUT":
                assert subresource == "status"
                response = self._replace_status(self._existing(name), body)
            case "DELETE":
                response = self._delete(self._existing(name), body["preconditions"])
            case _ if name:
                response = self._existing(name)
            case _:
                metadata = {"resourceVersion": f"{self._version}"}
                response = {"metadata": metadata, "items": list(self.objects.values())}
        return msgspec.json.encode(response)

    def _existing(self, name: str) -> Object:
        if name not in self.objects:
            raise ApiError(404, "NotFound", f"{name} not found")
        return self.objects[name]

    def _create(self, body: Object) -> Object:
        spec = body["spec"]
        if not (spec.keys() >= _REQUIRED and spec["action"] in set(ActionKind)):
            raise ApiError(422, "Invalid", "invalid")
        name = body["metadata"]["name"]
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", f"{name} exists")
        self.created[name] = self.created.get(name, 0) + 1
        spec = {key: item for key, item in spec.items() if key in _SPEC}
        return self._changed(
            "ADDED", {**body, "spec": spec, "metadata": {**body["metadata"], "uid": f"u{self._version}"}}
        )

    def _replace_status(self, current: Object, body: Object) -> Object:
        status = body.get("status", {})
        version = body["metadata"].get("resourceVersion")
        if version is None:
            raise ApiError(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        if version != current["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        if status.get("state", ActionState.RESERVED) not in set(ActionState):
            raise ApiError(422, "Invalid", "invalid")
        status = {key: item for key, item in status.items() if key in _STATUS}
        if status == current.get("status"):
            return current
        return self._changed("MODIFIED", {**current, "status": status})

    def _delete(self, current: Object, preconditions: Mapping[str, str]) -> Object:
        metadata = current["metadata"]
        if any(metadata[key] != expected for key, expected in preconditions.items()):
            raise ApiError(409, "Conflict", "the precondition failed")
        self._changed("DELETED", current)
        del self.objects[metadata["name"]]
        return {"status": "Success"}

    def _changed(self, kind: str, changed: Object) -> Object:
        self._version += 1
        metadata = {**changed["metadata"], "resourceVersion": f"{self._version}"}
        changed = deepcopy({**changed, "metadata": metadata})
        if kind == "ADDED":
            changed.pop("status", None)  # it has a path of its own
        self.objects[metadata["name"]] = changed
        self.history.append((kind, changed))
        return changed
