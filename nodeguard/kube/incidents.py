"""Incidents in the cluster: written where they differ, and what people decide of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from nodeguard.kube.client import Api
from nodeguard.kube.incident_object import Seen, Status, incident, new, patch, seen, status
from nodeguard.kube.lane import ConflictError, Lane
from nodeguard.kube.moments import seconds
from nodeguard.kube.permit import JSON, Permit
from nodeguard.kube.refusal import ApiError
from nodeguard.kube.trouble import Tell
from nodeguard.kube.versions import number
from nodeguard.kube.watching import Taker, Watching
from nodeguard.model.incident import Decision, Incident, State

PATH = "/apis/nodeguard.dev/v1alpha1/nodeincidents"


class Incidents:
    """Takes what a watch tells of incidents, and writes what is wanted of them.

    decided: is told what people decided, on each change. keep, within: how many that are resolved stay, and
    for how many seconds.
    """

    def __init__(
        self,
        permit: Permit,
        lane: Lane,
        decided: Callable[[Decision], None],
        *,
        keep: int = 500,
        within: float = 7 * 86_400.0,
    ) -> None:
        self._permit = permit
        self._lane = lane
        self._decided = decided
        self._keep = keep
        self._within = within
        self._seen: dict[str, Seen] = {}  # by name
        self._names: dict[str, str] = {}  # by uid
        self._known: dict[str, Incident] = {}  # by name, as of the latest `want`
        self._wanted: dict[str, Status] = {}
        self._is_synced = False

    def want(self, incidents: Iterable[Incident], now: float) -> None:
        """Have the cluster say all this, and nothing any more of what was resolved long ago.

        Others that are open stay as they are. now: seconds since the epoch.
        """
        before, known = self._wanted, self._known
        self._known = {one.name: one for one in incidents}
        self._wanted = {
            name: before[name] if name in before and known.get(name) is one else status(one)
            for name, one in self._known.items()
        }
        for name in before.keys() - self._wanted.keys():
            # The end of an incident that is in the cluster is written, though it is kept no longer.
            if before[name].state != State.RESOLVED or name not in self._seen:
                self._lane.drop(("incident", name))
        if self._is_synced:
            for name in self._wanted:
                self._compare(name)
            self._forget_old(now)

    def standing(self) -> list[Incident]:
        """What the cluster tells of incidents, whoever wrote it."""
        return [one for one in map(incident, self._seen.values()) if one is not None]

    def uid(self, name: str) -> str:
        """The uid of an incident's object; empty while there is none."""
        had = self._seen.get(name)
        return had.uid if had is not None else ""

    def changed(self, thing: Seen) -> None:
        """An object is new or has changed."""
        had = self._seen.get(thing.name)
        is_behind = had is not None and had.uid == thing.uid and number(had.version) > number(thing.version)
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
        if wanted is None or (had is None and wanted.state == State.RESOLVED):
            return
        if had is not None and had.status == wanted:
            self._lane.drop(("incident", name))
        else:
            self._lane.put(("incident", name), (name, wanted), self._write)

    async def _write(self, what: tuple[str, Status]) -> None:
        name, wanted = what
        had = self._seen.get(name)
        if had is not None and had.status == wanted:
            return
        if had is None:
            await self._make(name)
        decision = Decision(name) if had is None else had.decision
        try:
            if had is not None and _is_reopened(had, wanted) and decision.clear:
                # People cleared what is over, not what begins now. It is written before the status, so that
                # a crash between the two loses neither.
                await self._permit.write("PATCH", f"{PATH}/{name}", {"spec": {"clear": None}})
                decision = replace(decision, clear="")
            answer = seen(await self._permit.write("PATCH", f"{PATH}/{name}/status", patch(wanted)))
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
            await self._permit.write("POST", PATH, new(name), JSON)
        except ApiError as error:
            if error.status != 409:
                raise

    def _forget_old(self, now: float) -> None:
        over = [one for one in self._seen.values() if one.status.state == State.RESOLVED]
        over.sort(key=lambda one: one.status.resolved, reverse=True)
        for place, one in enumerate(over):
            if place >= self._keep or seconds(one.status.resolved) < now - self._within:
                self._wanted.pop(one.name, None)
                self._lane.put(("incident", one.name), (one.name, one.uid), self._delete)

    async def _delete(self, what: tuple[str, str]) -> None:
        name, uid = what
        try:
            await self._permit.write("DELETE", f"{PATH}/{name}", {"preconditions": {"uid": uid}}, JSON)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise


def _is_reopened(had: Seen, wanted: Status) -> bool:
    return had.status.state == State.RESOLVED and wanted.state != State.RESOLVED


def watching(api: Api, taker: Taker[Seen], tell: Tell) -> Watching[Seen]:
    """What follows all incidents of a cluster."""
    return Watching(api, PATH, "NodeIncidents", seen, taker, tell)
