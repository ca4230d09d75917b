"""Executor for incidents: writes NodeIncident objects, and reads operators' decisions in their spec."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.kube.client import ApiClient, version_number
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import JSON, FencedClient
from nodeguard.kube.incident_object import (
    IncidentStatus,
    ObservedIncident,
    decode_incident,
    forget_decisions,
    forget_spec,
    new_object,
    observed_status,
    status_patch,
)
from nodeguard.kube.incident_projection import incident_status, to_incident
from nodeguard.kube.repeated_writes import RepeatedWrites
from nodeguard.kube.stored_fields import StoredFields
from nodeguard.kube.watch import Watch, WatchHandler
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision
from nodeguard.model.instant import parse_or_zero

PATH = "/apis/nodeguard.dev/v1alpha1/nodeincidents"

# How many resolved incidents stay, and for how many seconds.
_KEEP_RESOLVED, _KEEP_SECONDS = 500, 7 * 86_400.0

# Seconds by which an operator's clock may be ahead. A decision of a later time has an invalid time.
_CLOCK_SKEW = 60.0

_UNDONE = "another client deletes or overwrites the NodeIncident {}"


class IncidentWriter:
    """Writes the desired incidents. It is the handler of a watch of all incidents."""

    def __init__(self, client: FencedClient, queue: WriteQueue) -> None:
        self._client = client
        self._queue = queue
        self._observed: dict[str, ObservedIncident] = {}  # by name
        self._names: dict[str, str] = {}  # by uid
        self._incidents: dict[str, Incident] = {}  # by name, as of the last `set_desired`
        self._desired: dict[str, IncidentStatus] = {}
        self._stored_fields = StoredFields()
        self._repeats = RepeatedWrites()  # of objects that another client deletes or overwrites
        self._is_synced = False
        self._updated_at = 0.0  # the time of the last `set_desired`

    def set_desired(self, incidents: Iterable[Incident], now: float) -> None:
        """Write all these incidents, and delete those that were resolved long ago.

        Other open incidents stay as they are. now: seconds since the epoch.
        """
        self._updated_at = now
        before, last = self._desired, self._incidents
        self._incidents = {incident.name: incident for incident in incidents}
        self._desired = {
            name: before[name] if name in before and last.get(name) is incident else incident_status(incident)
            for name, incident in self._incidents.items()
        }
        for name in before.keys() - self._desired.keys():
            self._repeats.forget(name)
            # The end of an incident that is in the cluster is written, though it is no longer desired.
            if before[name].state != IncidentState.RESOLVED or name not in self._observed:
                self._queue.drop(("incident", name))
        if self._is_synced:
            for name in self._desired:
                self._compare(name)
            self._delete_old(now)

    def current_incidents(self) -> list[Incident]:
        """Return the incidents that the cluster has, from any writer."""
        incidents = map(to_incident, self._observed.values())
        return [incident for incident in incidents if incident is not None]

    def object_uid(self, name: str) -> str:
        """Return the uid of an incident's object; empty while there is none."""
        observed = self._observed.get(name)
        return observed.uid if observed is not None else ""

    def changed(self, thing: ObservedIncident) -> None:
        """Handle an object that is new or has changed."""
        before = self._observed.get(thing.name)
        if before is not None and _is_newer(before, thing):
            # A response was faster than the watch; the decision is always taken from the watch.
            after = replace(before, decision=thing.decision, generation=thing.generation)
        else:
            after = thing
        self._observed[thing.name] = after
        self._names[thing.uid] = thing.name

        if self._is_synced:
            self._compare(thing.name)

    def gone(self, uid: str) -> None:
        """Handle an object that was deleted; one that is desired is created again."""
        name = self._names.pop(uid)
        if (observed := self._observed.get(name)) is not None and observed.uid == uid:
            del self._observed[name]
            self._stored_fields.forget(name)
            self._compare(name)

    def synced(self) -> None:
        """Handle the end of the list: all objects were reported."""
        self._is_synced = True
        for name in self._desired:
            self._compare(name)

    def _compare(self, name: str) -> None:
        desired, observed = self._desired.get(name), self._observed.get(name)
        if desired is None or (observed is None and desired.state == IncidentState.RESOLVED):
            return
        if observed is not None and self._is_written(observed, desired):
            self._queue.drop(("incident", name))
        else:
            self._queue.put(("incident", name), (name, desired), self._write)

    async def _write(self, change: tuple[str, IncidentStatus]) -> None:
        name, desired = change
        observed = self._observed.get(name)
        if observed is not None and self._is_written(observed, desired):
            return
        self._repeats.check(name, desired, _UNDONE.format(name))
        # A value that the server refused before may be permitted now.
        self._stored_fields.forget(name)
        if observed is None:
            current, decision, generation = IncidentStatus(), OperatorDecision(name), await self._create(name)
        else:
            current, decision, generation = observed.status, observed.decision, observed.generation
        try:
            before = decision
            if _is_reopened(current, desired):
                opened_at = parse_or_zero(desired.last_transition_time)
                decision = forget_decisions(before, opened_at, self._updated_at + _CLOCK_SKEW)
            if decision != before:
                # An operator decided about the fault that ended, not the one that begins now. The spec is
                # written before the status, so that a crash between the two loses neither.
                await self._client.write("PATCH", f"{PATH}/{name}", {"spec": forget_spec(before, decision)})
                generation += 1
            status = observed_status(desired, current, generation)
            answer = await self._write_status(name, status)
        except ApiError as error:
            if error.status != 404:
                raise
            self._observed.pop(name, None)
            raise ConflictError from None
        self._repeats.record(name, desired)
        # The watch delivers this later, unless it was faster; until then it must not be written again.
        latest = self._observed.get(name)
        if latest is None or not _is_newer(latest, answer):
            self._observed[name] = replace(answer, decision=decision, generation=generation)
            self._names[answer.uid] = name

    async def _write_status(self, name: str, status: IncidentStatus) -> ObservedIncident:
        """Write a status, without what the served definition refuses. Returns the object in the response."""
        while True:
            content = self._stored_fields.to_send(name, status)
            try:
                response = await self._client.write("PATCH", f"{PATH}/{name}/status", status_patch(content))
            except ApiError as error:
                is_invalid = error.status == 422
                if is_invalid and self._stored_fields.record_refusal(name, content, error.fields):
                    continue
                raise
            answer = decode_incident(response)
            self._stored_fields.record_response(content, answer.status)
            return answer

    async def _create(self, name: str) -> int:
        """Create an object and return its generation; 0 if it exists already."""
        try:
            return decode_incident(await self._client.write("POST", PATH, new_object(name), JSON)).generation
        except ApiError as error:
            if error.status != 409:
                raise
            return 0

    def _is_written(self, observed: ObservedIncident, desired: IncidentStatus) -> bool:
        status = observed_status(desired, observed.status, observed.generation)
        return self._stored_fields.is_stored(observed.name, observed.status, status)

    def _delete_old(self, now: float) -> None:
        # Another client may have resolved an open one: its status is written again.
        opened = {name for name, status in self._desired.items() if status.state != IncidentState.RESOLVED}
        resolved = [
            observed
            for name, observed in self._observed.items()
            if observed.status.state == IncidentState.RESOLVED and name not in opened
        ]
        resolved.sort(key=lambda observed: observed.status.resolved_at, reverse=True)
        for index, observed in enumerate(resolved):
            is_old = parse_or_zero(observed.status.resolved_at) < now - _KEEP_SECONDS
            if index >= _KEEP_RESOLVED or is_old:
                name = observed.name
                self._desired.pop(name, None)
                self._queue.put(("incident", name), (name, observed.uid), self._delete)

    async def _delete(self, incident: tuple[str, str]) -> None:
        name, uid = incident
        body = {"preconditions": {"uid": uid}}
        try:
            await self._client.write("DELETE", f"{PATH}/{name}", body, JSON)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise


def _is_newer(before: ObservedIncident, after: ObservedIncident) -> bool:
    return before.uid == after.uid and version_number(before.version) > version_number(after.version)


def _is_reopened(current: IncidentStatus, desired: IncidentStatus) -> bool:
    return current.state == IncidentState.RESOLVED and desired.state != IncidentState.RESOLVED


def watch_incidents(api: ApiClient, handler: WatchHandler[ObservedIncident]) -> Watch[ObservedIncident]:
    """Return a watch of all incidents of a cluster."""
    return Watch(api, PATH, "NodeIncidents", decode_incident, handler, if_missing=_IF_MISSING)


_IF_MISSING = (
    "install the CustomResourceDefinition nodeincidents.nodeguard.dev, which is in "
    "daemonset/crd-nodeincidents.yaml"
)
