"""One ConfigMap: what people have decided, where every aggregator finds it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.error_log import Log
from nodeguard.kube.errors import ApiError, single_line
from nodeguard.kube.watch import Watch

# How often it is tried to change what others change at the same time.
_TRIES = 8


class _Meta(Struct, frozen=True):
    uid: str
    version: str = field(name="resourceVersion")


class ConfigMapObject(Struct, frozen=True):
    """A ConfigMap as it is. data: text by key."""

    metadata: _Meta
    data: dict[str, str] = {}

    @property
    def uid(self) -> str:
        """Tells it from an earlier one of the same name."""
        return self.metadata.uid

    @property
    def version(self) -> str:
        """Its resourceVersion."""
        return self.metadata.version


_DECODER = msgspec.json.Decoder(ConfigMapObject)


class ConfigMap:
    """One ConfigMap that need not be there: what is not there is empty."""

    def __init__(self, api: ApiClient, namespace: str, name: str) -> None:
        self._api = api
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = name

    async def read(self) -> dict[str, str]:
        """What it holds. Raises ApiError."""
        found = await self._read()
        return {} if found is None else found.data

    async def update(self, edit: Callable[[Mapping[str, str]], dict[str, str]]) -> dict[str, str]:
        """Let it hold what `edit` makes of what it holds; made where it is not there.

        edit: may be called again, where another has changed it meanwhile. Raises ApiError.
        """
        for left in range(_TRIES, 0, -1):
            found = await self._read()
            before = {} if found is None else found.data
            after = edit(before)
            if after == before:
                break
            try:
                await (self._create(after) if found is None else self._patch(found, after))
                break
            except ApiError as error:
                # Another was quicker to make, change or remove it.
                if error.status not in {404, 409} or left == 1:
                    raise
        return after

    def watch(self, give: Callable[[Mapping[str, str]], None], tell: Log) -> Watch[ConfigMapObject]:
        """What follows it. give: is told what it holds, first at once, then at each change."""
        return Watch(
            self._api,
            self._collection,
            f"ConfigMap {self._name}",
            _DECODER.decode,
            _Taker(give),
            tell,
            {"fieldSelector": f"metadata.name={self._name}"},
        )

    async def _read(self) -> ConfigMapObject | None:
        try:
            return _DECODER.decode(await self._api.request("GET", f"{self._collection}/{self._name}"))
        except msgspec.MsgspecError as error:
            raise ApiError(
                0, "Unreadable", f"ConfigMap {self._name} cannot be read: {single_line(str(error))}"
            ) from None
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _create(self, data: dict[str, str]) -> None:
        metadata = {"name": self._name, "labels": {"app.kubernetes.io/name": "nodeguard"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        await self._api.request("POST", self._collection, body=body)

    async def _patch(self, found: ConfigMapObject, data: dict[str, str]) -> None:
        removed = dict.fromkeys(found.data.keys() - data.keys())
        body = {"metadata": {"resourceVersion": found.version}, "data": {**removed, **data}}
        await self._api.request(
            "PATCH", f"{self._collection}/{self._name}", body=body, content_type=MERGE_PATCH
        )


class _Taker:
    """Tells of the one that is there, and of none."""

    def __init__(self, give: Callable[[Mapping[str, str]], None]) -> None:
        self._give = give
        self._uid: str | None = None
        self._is_told = False

    def changed(self, thing: ConfigMapObject) -> None:
        self._uid = thing.uid
        self._is_told = True
        self._give(thing.data)

    def gone(self, uid: str) -> None:
        # A new one may have been told of before the end of the old.
        if uid == self._uid:
            self._uid = None
            self._give({})

    def synced(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._give({})
