"""Kueue's Topology objects, only read: by which labels people say that nodes are near each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import ApiClient
from nodeguard.kube.error_log import ErrorLog, Log
from nodeguard.kube.errors import ApiError, single_line
from nodeguard.kube.watch import Watch
from nodeguard.model.policy import TopologyLabels

# The newest first: a server that has it would warn of the other.
API_GROUPS = tuple(f"/apis/kueue.x-k8s.io/{version}" for version in ("v1beta2", "v1beta1"))

# Seconds until a server is asked again whether it has Topologies, after an answer and after none.
_LATER = 600.0
_SOON = 5.0

# The lowest level is mostly the node itself, which shares nothing.
_NODE = "kubernetes.io/hostname"


class KueueTopology(Struct, frozen=True):
    """A Topology. labels: those of its levels, coarsest first, but for the node's own."""

    uid: str
    version: str
    name: str
    labels: tuple[str, ...]


class _Meta(Struct):
    name: str
    uid: str
    version: str = field(name="resourceVersion")


class _Level(Struct):
    label: str = field(name="nodeLabel")


class _Spec(Struct):
    levels: list[_Level] = []


class _Topology(Struct):
    metadata: _Meta
    spec: _Spec = field(default_factory=_Spec)


class _Resource(Struct):
    name: str


class _Group(Struct):
    resources: list[_Resource] = []


_DECODER = msgspec.json.Decoder(_Topology)
_GROUP = msgspec.json.Decoder(_Group)


def decode_topology(raw: msgspec.Raw | bytes) -> KueueTopology:
    """A Topology's JSON. Raises msgspec.MsgspecError."""
    said = _DECODER.decode(raw)
    labels = dict.fromkeys(level.label for level in said.spec.levels if level.label != _NODE)
    return KueueTopology(said.metadata.uid, said.metadata.version, said.metadata.name, tuple(labels))


async def served_path(api: ApiClient) -> str:
    """The path of a server's Topologies; empty where it has none. Raises ApiError."""
    for group in API_GROUPS:
        try:
            said = _GROUP.decode(await api.request("GET", group))
        except msgspec.MsgspecError as error:
            raise ApiError(0, "Unreadable", f"{group} cannot be read: {single_line(str(error))}") from None
        except ApiError as error:
            if error.status == 404:
                continue
            raise
        if any(one.name == "topologies" for one in said.resources):
            return f"{group}/topologies"
    return ""


class KueueTopologyWatch:
    """Follows the Topologies of a server, where it has any: a cluster without Kueue is as good.

    give: is told of the ways in the view `fabric` that they declare, all of them, at each change.
    later: seconds between two questions whether the server has Topologies.
    """

    def __init__(
        self,
        api: ApiClient,
        give: Callable[[tuple[TopologyLabels, ...]], None],
        tell: Log,
        later: float = _LATER,
    ) -> None:
        self._api = api
        self._give = give
        self._tell = tell
        self._later = later
        self._trouble = ErrorLog("Topologies", tell)
        self._known: dict[str, KueueTopology] = {}
        self._given: tuple[TopologyLabels, ...] = ()
        self._is_synced = False

    async def run(self) -> None:
        """Follow them until cancelled."""
        while True:
            try:
                path = await served_path(self._api)
            except ApiError as error:
                self._trouble.failed(error)
                await asyncio.sleep(_SOON)
                continue
            self._trouble.recovered()
            if path:
                await self._follow(path)
                self._known.clear()
                self._settle()
                self._is_synced = False
            else:
                await asyncio.sleep(self._later)

    def changed(self, thing: KueueTopology) -> None:
        """A Topology is new or has changed."""
        self._known[thing.uid] = thing
        self._settle()

    def gone(self, uid: str) -> None:
        """A Topology is no more."""
        self._known.pop(uid, None)
        self._settle()

    def synced(self) -> None:
        """All Topologies have been told of."""
        self._is_synced = True
        self._settle()

    async def _follow(self, path: str) -> None:
        """Follow those of a path for as long as they are served there."""
        watching = Watch(self._api, path, "Topologies", decode_topology, self, self._tell)
        task = asyncio.create_task(watching.run())
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._later)
                with suppress(ApiError):
                    if await served_path(self._api) != path:
                        return
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        task.result()

    def _settle(self) -> None:
        """Give what there is, once that is known: each change has every node looked at."""
        if not self._is_synced:
            return
        labels = dict.fromkeys(one.labels for one in sorted(self._known.values(), key=_name) if one.labels)
        given = tuple(TopologyLabels("fabric", found) for found in labels)
        if given != self._given:
            self._given = given
            self._give(given)


def _name(one: KueueTopology) -> str:
    return one.name
