"""Kueue's Topology objects, read only: the node labels by which an operator declares the fabric."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import ApiClient
from nodeguard.kube.discovery import served_resources
from nodeguard.kube.errors import ApiError
from nodeguard.kube.objects import TypedObject
from nodeguard.kube.watch import Watch
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.policy import TopologyLabels

logger = logging.getLogger(__name__)

# The newest first: a server that has it would warn of the other.
API_GROUPS = tuple(f"/apis/kueue.x-k8s.io/{version}" for version in ("v1beta2", "v1beta1"))

# Seconds until the server is asked again whether it has Topologies: after an answer, and after an error.
_RECHECK_SECONDS = 600.0
_RETRY_SECONDS = 5.0

# The lowest level is usually the node itself, which shares nothing.
_HOSTNAME_LABEL = "kubernetes.io/hostname"


class KueueTopology(Struct, frozen=True):
    """A Topology. labels: of its levels, coarsest first, without the node's own."""

    uid: str
    version: str
    name: str
    labels: tuple[str, ...]


class _Level(Struct):
    label: str = field(name="nodeLabel")


class _Spec(Struct):
    levels: list[_Level] = []


class _Topology(TypedObject):
    spec: _Spec = field(default_factory=_Spec)


_DECODER = JsonDecoder(_Topology)


def decode_topology(raw: msgspec.Raw | bytes) -> KueueTopology:
    """Return the Topology of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    labels = dict.fromkeys(level.label for level in decoded.spec.levels if level.label != _HOSTNAME_LABEL)
    meta = decoded.metadata
    return KueueTopology(meta.uid, meta.version, meta.name, tuple(labels))


async def served_path(api: ApiClient) -> str:
    """Return the path of a server's Topologies; empty if it has none. Raises ApiError."""
    for path in API_GROUPS:
        if "topologies" in await served_resources(api, path):
            return f"{path}/topologies"
    return ""


class KueueTopologyWatch:
    """Follows the Topologies of a server, if it has any; a cluster without Kueue is normal.

    on_change: called with all label paths of the topology `fabric` that they declare, at each change.
    recheck_seconds: until the server is asked again whether it has Topologies.
    """

    def __init__(
        self,
        api: ApiClient,
        on_change: Callable[[tuple[TopologyLabels, ...]], None],
        recheck_seconds: float = _RECHECK_SECONDS,
    ) -> None:
        self._api = api
        self._on_change = on_change
        self._recheck_seconds = recheck_seconds
        self._topologies: dict[str, KueueTopology] = {}  # by uid
        self._reported: tuple[TopologyLabels, ...] = ()
        self._is_synced = False

    async def run(self) -> None:
        """Follow the Topologies until cancelled."""
        while True:
            try:
                path = await served_path(self._api)
            except ApiError as error:
                logger.warning(
                    "cannot find out whether the cluster has Topologies of Kueue",
                    extra={"error": error.message},
                )
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if path:
                await self._follow(path)
                self._topologies.clear()
                self._report()
                self._is_synced = False
            else:
                await asyncio.sleep(self._recheck_seconds)

    def changed(self, thing: KueueTopology) -> None:
        """Handle a Topology that is new or has changed."""
        self._topologies[thing.uid] = thing
        self._report()

    def gone(self, uid: str) -> None:
        """Handle a Topology that was deleted."""
        self._topologies.pop(uid, None)
        self._report()

    def synced(self) -> None:
        """Handle the end of the list: all Topologies were reported."""
        self._is_synced = True
        self._report()

    async def _follow(self, path: str) -> None:
        """Follow the Topologies at a path while the server serves them there."""
        watch = Watch(self._api, path, "Topologies", decode_topology, self)
        task = asyncio.create_task(watch.run())
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._recheck_seconds)
                with suppress(ApiError):
                    if await served_path(self._api) != path:
                        return
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        task.result()

    def _report(self) -> None:
        """Report the label paths once all are known and they changed: each change re-evaluates every node."""
        if not self._is_synced:
            return
        topologies = sorted(self._topologies.values(), key=_name)
        paths = dict.fromkeys(topology.labels for topology in topologies if topology.labels)
        declared = tuple(TopologyLabels("fabric", labels) for labels in paths)
        if declared != self._reported:
            self._reported = declared
            self._on_change(declared)


def _name(topology: KueueTopology) -> str:
    return topology.name
