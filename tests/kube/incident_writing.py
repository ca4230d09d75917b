"""A writer of incidents against a real API server, and an incident that it writes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import ApiClient
from nodeguard.kube.incident_object import ObservedIncident
from nodeguard.kube.incident_writer import PATH, IncidentWriter
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision, Symptom
from tests.kube.following import running
from tests.kube.writing import Writing, writing

NOW = 1_800_000_000.0

LOST = Incident(
    name="gpu-lost-3f2a",
    node="gpu-7",
    uid="u7",
    target="gpu/0000:3b:00",
    cause="gpu-lost",
    health=Health.FATAL,
    state=IncidentState.MARKED,
    first_seen=NOW - 60.0,
    last_transition=NOW - 30.0,
    scope="node gpu-7",
    component="GPU-5a",
    fault_class="gpu",
    action=Action.REBOOT_NODE,
    message="GPU 0000:3b:00 fell off the bus",
    symptoms=(Symptom("gpu-lost", "gpu/0000:3b:00", Health.FATAL, "fell off", ("NVRM: Xid 79",)),),
)


class RecordingWriter(IncidentWriter):
    """A writer that records the changes of operators' decisions that the watch delivers."""

    decisions: list[OperatorDecision]

    def changed(self, thing: ObservedIncident) -> None:
        before = self._observed.get(thing.name)
        if before is None or before.decision != thing.decision:
            self.decisions.append(thing.decision)
        super().changed(thing)


@asynccontextmanager
async def running_writer(
    api: ApiClient,
) -> AsyncIterator[tuple[Writing, IncidentWriter, list[OperatorDecision]]]:
    async with writing(api) as writers:
        writer = RecordingWriter(writers.client, writers.later)
        writer.decisions = []
        watch = incidents.watch_incidents(api, writer)
        async with running(watch):
            await writers.until(lambda: watch.is_synced)
            yield writers, writer, writer.decisions


async def objects(api: ApiClient) -> dict[str, Any]:
    listed = json.loads(await api.request("GET", PATH))
    return {incident["metadata"]["name"]: incident for incident in listed["items"]}


async def write_lost(writers: Writing, writer: IncidentWriter) -> None:
    """Write the incident, and wait until the writer has nothing to do."""
    writer.set_desired([LOST], NOW)
    await writers.until(lambda: writer.current_incidents() == [LOST])
    await writers.idle()
