"""One ConfigMap that every aggregator reads and any of them may change, for operators' decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import field

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError, decoded, may_have_succeeded
from nodeguard.kube.objects import TypedObject
from nodeguard.kube.watch import Watch
from nodeguard.model.json_decoder import JsonDecoder

# Tries to change the object while others change it at the same time; and of them, after a lost response.
_MAX_TRIES = 8


class ConfigMapObject(TypedObject):
    """A ConfigMap. data: text by key."""

    data: dict[str, str] = field(default_factory=dict)


_DECODER = JsonDecoder(ConfigMapObject)


class ConfigMap:
    """One ConfigMap, which may be absent: an absent one has no data."""

    def __init__(self, api: ApiClient, namespace: str, name: str) -> None:
        self._api = api
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = name

    async def read(self) -> dict[str, str]:
        """Return its data. Raises ApiError."""
        current = await self._read()
        return {} if current is None else current.data

    async def update(self, edit: Callable[[Mapping[str, str]], dict[str, str]]) -> dict[str, str]:
        """Replace its data by what `edit` returns for it, and return that. Create it if it is absent.

        edit: called again if another writer was first, or once if the response was lost. Raises ApiError. If
        a response was lost, that is its error, also if a later request is refused: the change may be stored.
        """
        lost: ApiError | None = None
        for tries_left in range(_MAX_TRIES, 0, -1):
            try:
                current = await self._read()
            except ApiError as error:
                raise (lost or error) from None
            before = {} if current is None else current.data
            after = edit(before)
            if after == before:
                break
            try:
                await (self._create(after) if current is None else self._patch(current, after))
                break
            except ApiError as error:
                # Another writer created, changed or deleted it first, or the change may be stored already.
                is_first_lost = lost is None and may_have_succeeded(error)
                if is_first_lost:
                    lost = error
                if tries_left == 1 or not (is_first_lost or error.status in {404, 409}):
                    raise (lost or error) from None
        return after

    def watch(self, on_change: Callable[[Mapping[str, str]], None]) -> Watch[ConfigMapObject]:
        """Return a watch of it. on_change: called with its data, once at the start, then at each change."""
        return Watch(
            self._api,
            self._collection,
            f"ConfigMap {self._name}",
            _DECODER.decode,
            _Handler(on_change),
            {"fieldSelector": f"metadata.name={self._name}"},
        )

    async def _read(self) -> ConfigMapObject | None:
        try:
            return self._decode(await self._api.request("GET", f"{self._collection}/{self._name}"))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _create(self, data: dict[str, str]) -> None:
        metadata = {"name": self._name, "labels": {"app.kubernetes.io/name": "nodeguard"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self._decode(await self._api.request("POST", self._collection, body=body))

    async def _patch(self, current: ConfigMapObject, data: dict[str, str]) -> None:
        removed = dict.fromkeys(current.data.keys() - data.keys())
        body = {"metadata": {"resourceVersion": current.version}, "data": {**removed, **data}}
        path = f"{self._collection}/{self._name}"
        self._decode(await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH))

    def _decode(self, response: bytes) -> ConfigMapObject:
        """Return the object in a response. Raises ApiError: anything else is of another server."""
        return decoded(_DECODER.decode, response, f"ConfigMap {self._name}")


class _Handler:
    """Reports the data of the ConfigMap, and no data if there is none."""

    def __init__(self, on_change: Callable[[Mapping[str, str]], None]) -> None:
        self._on_change = on_change
        self._uid: str | None = None
        self._has_reported = False

    def changed(self, thing: ConfigMapObject) -> None:
        self._uid = thing.uid
        self._has_reported = True
        self._on_change(thing.data)

    def gone(self, uid: str) -> None:
        # A new object may be reported before the deletion of the old one.
        if uid == self._uid:
            self._uid = None
            self._on_change({})

    def synced(self) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._on_change({})
