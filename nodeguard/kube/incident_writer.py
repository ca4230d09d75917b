"""Incidents in the cluster: written where they differ, and what people decide of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from nodeguard.kube.client import ApiClient, version_number
from nodeguard.kube.error_log import Log
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import JSON, FencedClient
from nodeguard.kube.incident_object import (
    IncidentStatus,
    ObservedIncident,
    decode_incident,
    incident_status,
    new_object,
    status_patch,
    to_incident,
)
from nodeguard.kube.watch import Watch, WatchHandler
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from nodeguard.model.instant import parse_or_zero

PATH = "/apis/nodeguard.dev/v1alpha1/nodeincidents"


class IncidentWriter:
    """Takes what a watch tells of incidents, and writes what is wanted of them.

    decided: is told what people decided, on each change. keep, within: how many that are resolved stay, and
    for how many seconds.
    """

    def __init__(
        self,
        permit: FencedClient,
        lane: WriteQueue,
        decided: Callable[[OperatorDecision], None],
        *,
        keep_resolved: int = 500,
        keep_seconds: float = 7 * 86_400.0,
    ) -> None:
        self._permit = permit
        self._lane = lane
        self._decided = decided
        self._keep = keep_resolved
        self._within = keep_seconds
        self._seen: dict[str, ObservedIncident] = {}  # by name
        self._names: dict[str, str] = {}  # by uid
        self._known: dict[str, Incident] = {}  # by name, as of the latest `want`
        self._wanted: dict[str, IncidentStatus] = {}
        self._is_synced = False

    def set_desired(self, incidents: Iterable[Incident], now: float) -> None:
        """Have the cluster say all this, and nothing any more of what was resolved long ago.

        Others that are open stay as they are. now: seconds since the epoch.
        """
        before, known = self._wanted, self._known
        self._known = {one.name: one for one in incidents}
        self._wanted = {
            name: before[name] if name in before and known.get(name) is one else incident_status(one)
            for name, one in self._known.items()
        }
        for name in before.keys() - self._wanted.keys():
            # The end of an incident that is in the cluster is written, though it is kept no longer.
            if before[name].state != IncidentState.RESOLVED or name not in self._seen:
                self._lane.drop(("incident", name))
        if self._is_synced:
            for name in self._wanted:
                self._compare(name)
            self._forget_old(now)

    def current_incidents(self) -> list[Incident]:
        """What the cluster tells of incidents, whoever wrote it."""
        return [one for one in map(to_incident, self._seen.values()) if one is not None]

    def object_uid(self, name: str) -> str:
        """The uid of an incident's object; empty while there is none."""
        had = self._seen.get(name)
        return had.uid if had is not None else ""

    def changed(self, thing: ObservedIncident) -> None:
        """An object is new or has changed."""
        had = self._seen.get(thing.name)
        is_behind = (
            had is not None
            and had.uid == thing.uid
            and version_number(had.version) > version_number(thing.version)
        )
        self._seen[thing.name] = replace(had, decision=thing.decision) if had and is_behind else thing
        self._names[thing.uid] = thing.name
        if had is None or had.decision != thing.decision:
            self._decided(thing.decision)
        if self._is_synced:
            self._compare(thing.name)

    def gone(self, uid: str) -> None:
        """An object is no more; what is still wanted is made anew."""
        name = self._names.pop(uid)
        if (one := self._seen.get(name)) is not None and one.uid == uid:
            del self._seen[name]
            self._compare(name)

    def synced(self) -> None:
        """All objects are known."""
        self._is_synced = True
        for name in self._wanted:
            self._compare(name)

    def _compare(self, name: str) -> None:
        wanted, had = self._wanted.get(name), self._seen.get(name)
        if wanted is None or (had is None and wanted.state == IncidentState.RESOLVED):
            return
        if had is not None and had.status == wanted:
            self._lane.drop(("incident", name))
        else:
            self._lane.put(("incident", name), (name, wanted), self._write)

    async def _write(self, what: tuple[str, IncidentStatus]) -> None:
        name, wanted = what
        had = self._seen.get(name)
        if had is not None and had.status == wanted:
            return
        if had is None:
            await self._make(name)
        decision = OperatorDecision(name) if had is None else had.decision
        try:
            if had is not None and _is_reopened(had, wanted) and decision.clear:
                # People cleared what is over, not what begins now. It is written before the status, so that
                # a crash between the two loses neither.
                await self._permit.write("PATCH", f"{PATH}/{name}", {"spec": {"clear": None}})
                decision = replace(decision, clear="")
            answer = decode_incident(
                await self._permit.write("PATCH", f"{PATH}/{name}/status", status_patch(wanted))
            )
        except ApiError as error:
            if error.status != 404:
                raise
            self._seen.pop(name, None)
            raise ConflictError from None
        # A watch tells of it later; until then it must not be written again.
        self._seen[name] = replace(answer, decision=decision)
        self._names[answer.uid] = name

    async def _make(self, name: str) -> None:
        try:
            await self._permit.write("POST", PATH, new_object(name), JSON)
        except ApiError as error:
            if error.status != 409:
                raise

    def _forget_old(self, now: float) -> None:
        over = [one for one in self._seen.values() if one.status.state == IncidentState.RESOLVED]
        over.sort(key=lambda one: one.status.resolved_at, reverse=True)
        for place, one in enumerate(over):
            if place >= self._keep or parse_or_zero(one.status.resolved_at) < now - self._within:
                self._wanted.pop(one.name, None)
                self._lane.put(("incident", one.name), (one.name, one.uid), self._delete)

    async def _delete(self, what: tuple[str, str]) -> None:
        name, uid = what
        try:
            await self._permit.write("DELETE", f"{PATH}/{name}", {"preconditions": {"uid": uid}}, JSON)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise


def _is_reopened(had: ObservedIncident, wanted: IncidentStatus) -> bool:
    return had.status.state == IncidentState.RESOLVED and wanted.state != IncidentState.RESOLVED


def watch_incidents(
    api: ApiClient, taker: WatchHandler[ObservedIncident], tell: Log
) -> Watch[ObservedIncident]:
    """What follows all incidents of a cluster."""
    return Watch(api, PATH, "NodeIncidents", decode_incident, taker, tell)
