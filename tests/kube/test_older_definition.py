"""Incidents in a cluster with the CustomResourceDefinition of an older version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodeguard.kube.client import ApiClient
from nodeguard.kube.incident_writer import IncidentWriter
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import DiagnosisRecord, IncidentState, Symptom
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import CRD, define_incidents
from tests.kube.incident_writing import LOST, NOW, objects, running_writer
from tests.kube.writing import Writing

Properties = dict[str, Any]

OPENAPI = "/openapi/v3/apis/nodeguard.dev/v1alpha1"


@contextmanager
def definition(cluster: Cluster, change: Callable[[Properties], object]) -> Iterator[None]:
    """Serve a definition with changed properties of the status."""
    define_incidents(cluster)
    older = yaml.safe_load(CRD.read_text())
    [version] = older["spec"]["versions"]
    change(version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"])
    cluster.api.apply([older])
    _wait_until_served(cluster, older)
    try:
        yield
    finally:
        define_incidents(cluster)
        _wait_until_served(cluster, yaml.safe_load(CRD.read_text()))


def _wait_until_served(cluster: Cluster, crd: Any) -> None:
    """Wait until the API server publishes the schema of a definition."""
    [version] = crd["spec"]["versions"]
    wanted = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]

    def is_published() -> bool:
        if not cluster.has(OPENAPI):
            return False
        document = cluster.api.get(OPENAPI)
        schema = document["components"]["schemas"]["dev.nodeguard.v1alpha1.NodeIncident"]
        published = schema["properties"]["status"]["properties"]
        return bool(
            published.keys() == wanted.keys()
            and all(published[name].get("enum") == wanted[name].get("enum") for name in wanted)
        )

    cluster.until(is_published, "kube-apiserver")


@asynccontextmanager
async def counted_writer(api: ApiClient) -> AsyncIterator[tuple[Writing, IncidentWriter, list[str]]]:
    """A writer with the methods of its requests."""
    async with running_writer(api) as (writers, writer, _):
        requests: list[str] = []
        write = writers.client.write

        async def recorded(method: str, *arguments: Any, **more: Any) -> bytes:
            requests.append(method)
            return await write(method, *arguments, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writers.client, "write", recorded)
            yield writers, writer, requests


def problems(writers: Writing) -> list[str]:
    """The log, without the watch: the server ends it when a definition changes."""
    return [line for line in writers.messages if " watch " not in line and "NodeIncidents" in line]


async def test_a_field_that_is_not_served_is_logged_once_and_written_once(
    api: ApiClient, controlplane: Cluster
) -> None:
    def change(properties: Properties) -> None:
        del properties["scope"], properties["diagnosis"]["properties"]["firstVote"]
        del properties["symptoms"]["items"]["properties"]["message"]
        del properties["conditions"]["items"]["properties"]["observedGeneration"]

    incident = replace(LOST, diagnosis=DiagnosisRecord(("link",), first_vote=NOW))
    with definition(controlplane, change):
        async with counted_writer(api) as (writers, writer, requests):
            writer.set_desired([incident], NOW)
            await writers.until(writer.current_incidents)
            await writers.idle()
            assert requests == ["POST", "PATCH"]
            for number in range(8):
                writer.set_desired([replace(incident), replace(incident, name=f"other-{number}")], NOW)
                await writers.idle()
            assert requests == ["POST", "PATCH", *["POST", "PATCH"] * 8]
            writer.set_desired([replace(incident, message="it is back")], NOW)
            await writers.until(lambda: writer.current_incidents()[0].message == "it is back")
            await writers.idle()
        fields = problems(writers)
        assert len(fields) == 4, fields
        assert all("does not store a field" in line for line in fields)
        assert all("apply crd-nodeincidents.yaml" in line for line in fields)
        for field in ("status.scope", "status.diagnosis.firstVote", "status.symptoms[].message"):
            assert any(field in line for line in fields), fields


async def test_a_field_is_written_again_once_it_is_served(api: ApiClient, controlplane: Cluster) -> None:
    async with counted_writer(api) as (writers, writer, _):
        with definition(controlplane, lambda properties: properties.pop("scope")):
            writer.set_desired([LOST], NOW)
            await writers.until(writer.current_incidents)
            await writers.idle()
        # The end of the block deletes the objects, and the writer creates them again.
        writer.set_desired([LOST, replace(LOST, name="other")], NOW)
        expected = {LOST.name: "node gpu-7", "other": "node gpu-7"}
        await writers.until(
            lambda: {item.name: item.scope for item in writer.current_incidents()} == expected
        )


async def test_a_value_that_is_refused_is_logged_once_and_the_rest_is_written(
    api: ApiClient, controlplane: Cluster
) -> None:
    def change(properties: Properties) -> None:
        properties["action"]["enum"] = ["none", "monitor"]
        properties["symptoms"]["items"]["properties"]["health"]["enum"] = ["ok", "warning"]
        properties["symptoms"]["items"]["properties"]["check"]["maxLength"] = 8
        properties["jobs"]["items"]["maxLength"] = 5

    symptoms = (
        Symptom("gpu-lost", "gpu/0000:3b:00", Health.FATAL, "fell off", ("NVRM: Xid 79",)),
        Symptom("gpu-hot", "gpu/0000:3b:00", Health.WARNING, "hot"),
        Symptom("gpu-throttled", "gpu/0000:3b:00", Health.WARNING, "slow"),
    )
    incident = replace(LOST, symptoms=symptoms, jobs=("a/b", "team/job"))
    with definition(controlplane, change):
        async with counted_writer(api) as (writers, writer, requests):
            writer.set_desired([incident], NOW)
            await writers.until(lambda: (found := writer.current_incidents()) and found[0].message)
            await writers.idle()
            status = (await objects(api))[LOST.name]["status"]
            assert status["message"] == LOST.message
            assert "action" not in status
            assert status["jobs"] == ["a/b"]
            # A symptom without its name is refused, so that the whole symptom is left out.
            assert status["symptoms"] == [
                {
                    "check": "gpu-lost",
                    "target": "gpu/0000:3b:00",
                    "message": "fell off",
                    "evidence": ["NVRM: Xid 79"],
                },
                {"check": "gpu-hot", "target": "gpu/0000:3b:00", "health": "warning", "message": "hot"},
            ]
            count = len(requests)
            for _ in range(8):
                writer.set_desired([replace(incident)], NOW)
                await writers.idle()
            assert len(requests) == count
            # The value of another action is permitted.
            writer.set_desired([replace(incident, action=Action.MONITOR)], NOW)
            await writers.until(lambda: writer.current_incidents()[0].action == Action.MONITOR)
            over = replace(incident, state=IncidentState.RESOLVED, resolved_at=NOW)
            writer.set_desired([over], NOW)
            await writers.until(lambda: writer.current_incidents()[0].state == IncidentState.RESOLVED)
            await writers.idle()
        refused = problems(writers)
        assert all("refuses a value" in line for line in refused)
        assert len(refused) == len(set(refused)) == 5, refused
        assert {"status.action", "status.jobs[]", "status.symptoms[].health"} <= {
            word for line in refused for word in line.replace("'", " ").replace("=", " ").split()
        }
