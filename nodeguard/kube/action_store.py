"""The store of actions in Kubernetes: NodeActions. A POST is the reservation, a PUT with resourceVersion the
comparison: the API server lets one of two writers succeed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from msgspec import MsgspecError, Raw
from msgspec.structs import replace

from nodeguard.kube.action_object import (
    ACTIONS_REMEDY,
    MAX_MESSAGE,
    ObservedAction,
    action_body,
    decode_action,
)
from nodeguard.kube.client import ApiClient, Query, version_number
from nodeguard.kube.errors import ApiError, is_refusal
from nodeguard.kube.watch import PagedList, Watch
from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStoreError

logger = logging.getLogger(__name__)

PLURAL = "nodeactions"

# Seconds between two checks whether the server has NodeActions.
_DISCOVERY = 10.0

# The server refuses an object with fields that its definition does not have; otherwise it would drop these.
_STRICT: Query = {"fieldValidation": "Strict"}


def actions_path(namespace: str) -> str:
    """Return the path of the actions of a namespace."""
    return f"/apis/nodeguard.dev/v1alpha1/namespaces/{namespace}/{PLURAL}"


class KubernetesActionStore:
    """See ActionStore. It is the handler of a watch of all actions. on_changed: is called after each change.

    Without the definition of NodeActions, or the right to these, nothing is stored, and `problem` has the
    remedy.
    """

    def __init__(self, api: ApiClient, namespace: str, on_changed: Callable[[], object]) -> None:
        self._api = api
        self._namespace = namespace
        self._path = actions_path(namespace)
        self._on_changed = on_changed
        self._observed: dict[str, ObservedAction] = {}  # by name
        self._actions: dict[str, NodeAction] = {}
        self._is_synced = False
        self._problem = ""

    async def run(self) -> None:
        """Watch the actions, as soon as the server has them, until cancelled."""
        while not await self._is_served():
            await asyncio.sleep(_DISCOVERY)
        await Watch(
            self._api, self._path, "NodeActions", decode_action, self, if_missing=ACTIONS_REMEDY
        ).run()

    async def _is_served(self) -> bool:
        try:
            await self._api.request("GET", self._path, query={"limit": 1})
        except ApiError as error:
            before = self._problem
            self._record_problem(error)
            if self._problem != before:
                logger.warning("cannot read the actions", extra={"error": self._problem})
            return False
        self._problem = ""
        return True

    def is_synced(self) -> bool:
        """Return whether all stored actions are read."""
        return self._is_synced

    def problem(self) -> str:
        """Return why no action can be stored, with the remedy; empty if nothing is known to be wrong."""
        return self._problem

    def actions(self) -> Collection[NodeAction]:
        """Return all actions that this version knows."""
        return self._actions.values()

    def changed(self, thing: ObservedAction) -> None:
        """Handle an object that is new or has changed."""
        self._set(thing)

    def gone(self, uid: str) -> None:
        """Handle a deleted object."""
        for observed in [item for item in self._observed.values() if item.uid == uid]:
            self._remove(observed.name)

    def synced(self) -> None:
        """Handle the end of the list."""
        self._is_synced = True
        self._on_changed()

    async def reserve(self, action: NodeAction) -> None:
        """Create an action; an existing one stays as it is."""
        try:
            observed = await self._write("POST", self._path, action_body(action, self._namespace), _STRICT)
        except ApiError as error:
            if error.status != 409:
                raise self._failure(error) from None
            await self._read(action.key)
            return
        try:
            self._check_stored(observed, action)
        except ActionStoreError:
            await self._discard(observed)
            raise

    async def advance(self, before: NodeAction, after: NodeAction) -> None:
        """Replace an action, unless it has changed."""
        observed = self._observed.get(before.key)
        if observed is None or observed.action != before:
            return
        after = replace(after, message=after.message[:MAX_MESSAGE])
        body = action_body(after, self._namespace, observed.version)
        try:
            stored = await self._write("PUT", f"{self._path}/{before.key}/status", body, _STRICT)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise self._failure(error) from None
            await self._read(before.key)
            return
        self._check_stored(stored, after)

    async def refresh(self) -> None:
        """Read all actions as they are stored now: the watch may be late."""
        missing = set(self._observed)
        try:
            async for item in PagedList(self._api, self._path).items():
                observed = _decoded(item)
                missing.discard(observed.name)
                self._set(observed)
        except ApiError as error:
            raise self._failure(error) from None
        for name in missing:
            self._remove(name)

    async def delete(self, action: NodeAction) -> None:
        """Delete an action, unless it has changed."""
        observed = self._observed.get(action.key)
        if observed is None or observed.action != action:
            return
        try:
            await self._delete(observed)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise self._failure(error) from None
            await self._read(action.key)
            return
        self._remove(action.key)

    async def _delete(self, observed: ObservedAction) -> None:
        body = {"preconditions": {"uid": observed.uid, "resourceVersion": observed.version}}
        await self._api.request("DELETE", f"{self._path}/{observed.name}", body=body)

    async def _discard(self, observed: ObservedAction) -> None:
        """Delete what was not stored as it was sent: it reserves nothing."""
        with suppress(ApiError):
            await self._delete(observed)

    async def _write(
        self, method: str, path: str, body: Mapping[str, object], query: Query | None = None
    ) -> ObservedAction:
        """Send a request, and return the object in the response. Raises ApiError."""
        return _decoded(await self._api.request(method, path, body=body, query=query))

    async def _read(self, name: str) -> None:
        """Read one action: another process has changed it, or an earlier response was lost."""
        try:
            observed = _decoded(await self._api.request("GET", f"{self._path}/{name}"))
        except ApiError as error:
            if error.status != 404:
                raise self._failure(error) from None
            self._remove(name)
            return
        self._set(observed)
        if observed.action is None:
            raise ActionStoreError(f"the NodeAction {name} is not of this version: upgrade, or delete it")

    def _check_stored(self, observed: ObservedAction, action: NodeAction) -> None:
        """Verify that the response has all that was sent: only then it counts. Raises ActionStoreError."""
        if observed.action != action:
            self._problem = f"the cluster does not store all of a NodeAction: {ACTIONS_REMEDY}"
            raise ActionStoreError(self._problem)
        self._problem = ""
        self._set(observed)

    def _failure(self, error: ApiError) -> ActionStoreError:
        self._record_problem(error)
        return ActionStoreError(self._problem or str(error))

    def _record_problem(self, error: ApiError) -> None:
        """Record an error that a later attempt will get again."""
        if error.status in {400, 404, 422}:
            self._problem = f"{error}: {ACTIONS_REMEDY}"
        elif is_refusal(error):
            self._problem = str(error)

    def _set(self, observed: ObservedAction) -> None:
        before = self._observed.get(observed.name)
        if before is not None and version_number(before.version) > version_number(observed.version):
            return  # the response of a write was faster than the watch
        self._observed[observed.name] = observed
        self._actions.pop(observed.name, None)
        if observed.action is not None:
            self._actions[observed.name] = observed.action
        self._on_changed()

    def _remove(self, name: str) -> None:
        self._observed.pop(name, None)
        self._actions.pop(name, None)
        self._on_changed()


def _decoded(response: bytes | Raw) -> ObservedAction:
    try:
        return decode_action(response)
    except MsgspecError:
        raise ApiError(0, "Unreadable", "the response does not come from a Kubernetes API") from None
