from __future__ import annotations

import asyncio
import json
import subprocess
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.kube import incident_object
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.incident_writer import PATH, IncidentWriter
from nodeguard.model.finding import Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import (
    Confinement,
    DiagnosisRecord,
    FalseAlarm,
    IncidentState,
    OperatorDecision,
    Symptom,
)
from nodeguard.model.instant import rfc3339
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import CRD
from tests.kube.incident_writing import LOST, NOW, objects, running_writer, write_lost
from tests.kube.writing import Writing, writing
from tests.waiting import PATIENCE

DAY = 86_400.0

# Its fault began before the aggregator opened the incident again.
REOPENED = replace(LOST, first_seen=NOW + 30.0, last_transition=NOW + 60.0, occurrences=2)


async def test_an_incident_is_created_and_updated(api: ApiClient, defined: Cluster) -> None:
    async with running_writer(api) as (writers, writer, _):
        await write_lost(writers, writer)
        incident = (await objects(api))[LOST.name]
        assert incident["status"]["subject"] == "gpu-7"
        assert "domain" not in incident["status"]
        [marked] = (item for item in incident["status"]["conditions"] if item["type"] == "Marked")
        assert (marked["status"], marked["message"]) == ("True", "New work is kept off node gpu-7.")

        for _ in range(3):
            writer.set_desired([LOST], NOW)
        assert writers.later.pending == 0

        over = replace(LOST, state=IncidentState.RESOLVED, resolved_at=NOW, scope="", symptoms=())
        writer.set_desired([over], NOW)
        await writers.until(lambda: writer.current_incidents() == [over])
        status = (await objects(api))[LOST.name]["status"]
        assert status["resolvedAt"] == "2027-01-15T08:00:00Z"
        assert "symptoms" not in status
    assert writers.messages == []


async def test_the_confinement_of_a_suppression_is_stored(api: ApiClient, defined: Cluster) -> None:
    suppressed = replace(
        LOST,
        name="check-gpu-lost",
        node="",
        uid="",
        target="check/gpu-lost",
        state=IncidentState.OPEN,
        scope="",
    )
    async with running_writer(api) as (writers, writer, _):
        for confinement in (None, Confinement(NOW, 12), None):
            incident = replace(suppressed, confinement=confinement)
            writer.set_desired([incident], NOW)
            await writers.until(partial(lambda wanted: writer.current_incidents() == [wanted], incident))
            await writers.idle()
    assert writers.messages == []


async def test_the_data_of_a_diagnosis_is_stored_and_removed(api: ApiClient, defined: Cluster) -> None:
    domain = replace(LOST, name="leaf-7", node="", uid="", domain="fabric/leaf-7", cause="link")
    async with running_writer(api) as (writers, writer, _):
        for since in (0.0, NOW, 0.0):
            incident = replace(
                domain, diagnosis=DiagnosisRecord(("link", "link-down"), recovering_since=since)
            )
            writer.set_desired([incident], NOW)
            await writers.until(partial(lambda wanted: writer.current_incidents() == [wanted], incident))
            await writers.idle()
    assert writers.messages == []


async def test_the_hardware_of_a_gpu_is_stored_and_its_index_removed(
    api: ApiClient, defined: Cluster
) -> None:
    async with running_writer(api) as (writers, writer, _):
        for hardware in (None, Hardware(0, "165", "692", 6, "slot 5"), Hardware(None, "165"), None):
            incident = replace(LOST, hardware=hardware)
            writer.set_desired([incident], NOW)
            await writers.until(partial(lambda wanted: writer.current_incidents() == [wanted], incident))
            await writers.idle()
    assert writers.messages == []


async def test_the_end_of_an_incident_that_is_no_longer_desired_is_written(
    api: ApiClient, defined: Cluster
) -> None:
    async with running_writer(api) as (writers, writer, _):
        await write_lost(writers, writer)
        over = replace(LOST, state=IncidentState.RESOLVED, resolved_at=NOW, scope="", symptoms=())
        writer.set_desired([over, replace(over, name="never-written")], NOW)
        writer.set_desired([], NOW)
        await writers.until(lambda: writer.current_incidents() == [over])
        await writers.idle()
        assert (await objects(api)).keys() == {LOST.name}


async def test_kubectl_prints_the_columns_of_incidents(api: ApiClient, defined: Cluster) -> None:
    rack = replace(
        LOST, name="leaf-77", node="", domain="fabric/leaf-7", cause="port-down", state=IncidentState.WITHHELD
    )
    async with running_writer(api) as (writers, writer, _):
        writer.set_desired([LOST, rack], NOW)
        await writers.until(lambda: len(writer.current_incidents()) == 2)
    header, first, second = defined.kubectl("get", "nodeincidents").splitlines()
    assert header.split() == ["NAME", "SUBJECT", "CAUSE", "HEALTH", "STATE", "AGE"]
    assert first.split()[:5] == ["gpu-lost-3f2a", "gpu-7", "gpu-lost", "fatal", "Marked"]
    assert second.split()[:5] == ["leaf-77", "fabric/leaf-7", "port-down", "fatal", "Withheld"]
    selected = defined.kubectl("get", "nodeincidents", "--field-selector", "status.node=gpu-7", "-o", "name")
    assert selected == "nodeincident.nodeguard.dev/gpu-lost-3f2a\n"
    assert "The component to replace" in defined.kubectl("explain", "nodeincident.status")


async def test_a_decision_in_the_spec_is_reported(api: ApiClient, defined: Cluster) -> None:
    async with running_writer(api) as (writers, writer, decisions):
        writer.set_desired([LOST], NOW)
        await writers.until(lambda: writer.current_incidents() == [LOST])
        patch = json.dumps(
            {"spec": {"acknowledged": "ada: on it", "clear": {"by": "ada", "at": "2027-01-15T08:00:00Z"}}}
        )
        defined.kubectl("patch", "nodeincident", LOST.name, "--type=merge", "-p", patch)
        await writers.until(lambda: any(incident.clear for incident in decisions))
        assert decisions[-1] == OperatorDecision(LOST.name, "ada: on it", "ada at 2027-01-15T08:00:00Z")

        async def is_processed() -> bool:
            incident = (await objects(api))[LOST.name]
            generations = (incident["status"]["observedGeneration"], incident["metadata"]["generation"])
            return generations == (2, 2)

        async with asyncio.timeout(PATIENCE):
            while not await is_processed():
                await asyncio.sleep(0.01)
        count = len(decisions)
        writer.set_desired([replace(LOST, state=IncidentState.RECOVERING)], NOW)
        await writers.until(lambda: writer.current_incidents()[0].state is IncidentState.RECOVERING)
        assert len(decisions) == count
    # A later leader receives the decision, too.
    async with running_writer(api) as (_, _, decisions):
        assert decisions == [OperatorDecision(LOST.name, "ada: on it", "ada at 2027-01-15T08:00:00Z")]


async def write_resolved(writers: Writing, writer: IncidentWriter) -> None:
    """Write the incident of the lost GPU, and then that it is over."""
    over = replace(LOST, state=IncidentState.RESOLVED, resolved_at=NOW)
    writer.set_desired([LOST], NOW)
    await writers.until(lambda: writer.current_incidents() == [LOST])
    writer.set_desired([over], NOW)
    await writers.until(lambda: writer.current_incidents() == [over])


async def test_a_clear_and_a_false_alarm_do_not_count_for_a_later_fault(
    api: ApiClient, defined: Cluster
) -> None:
    async with running_writer(api) as (writers, writer, decisions):
        await write_resolved(writers, writer)
        false_alarm = FalseAlarm("ada", "2027-01-15T08:00:00Z", "a bad sensor", withdrawn=True)
        statement = msgspec.to_builtins(false_alarm)
        spec = {"acknowledged": "ada", "clear": {"by": "ada: reseated"}, "falseAlarm": statement}
        defined.kubectl("patch", "nodeincident", LOST.name, "--type=merge", "-p", json.dumps({"spec": spec}))
        await writers.until(lambda: any(incident.false_alarm == false_alarm for incident in decisions))
        writer.set_desired([REOPENED], REOPENED.last_transition)
        await writers.until(lambda: writer.current_incidents() == [REOPENED])
        assert (await objects(api))[LOST.name]["spec"] == {"acknowledged": "ada"}
        patch = json.dumps({"spec": {"clear": {"by": "ada: reseated"}}})
        defined.kubectl("patch", "nodeincident", LOST.name, "--type=merge", "-p", patch)
        await writers.until(lambda: decisions[-1].clear == "ada: reseated")
    async with running_writer(api) as (_, _, decisions):
        assert decisions == [OperatorDecision(LOST.name, "ada", "ada: reseated")]


async def test_a_decision_about_the_fault_that_begins_outlasts_its_first_write(
    api: ApiClient, defined: Cluster
) -> None:
    async with running_writer(api) as (writers, writer, decisions):
        await write_resolved(writers, writer)
        statement = {"by": "ada", "at": rfc3339(REOPENED.last_transition + 1.0)}
        clear = {"by": "ada", "at": rfc3339(REOPENED.last_transition)}
        patch = json.dumps({"spec": {"clear": clear, "falseAlarm": statement}})
        defined.kubectl("patch", "nodeincident", LOST.name, "--type=merge", "-p", patch)
        await writers.until(lambda: any(decision.clear for decision in decisions))
        writer.set_desired([REOPENED], REOPENED.last_transition)
        await writers.until(lambda: writer.current_incidents() == [REOPENED])
        assert (await objects(api))[LOST.name]["spec"] == {"falseAlarm": statement}


@pytest.mark.parametrize(
    "spec",
    [
        {"clear": {"by": "x" * 257}},
        {"clear": {}},
        {"clear": "ada"},
        {"acknowledged": "two\nlines"},
        {"falseAlarm": {"reason": "nameless"}},
        {"falseAlarm": {"by": "ada", "reason": "x" * 513}},
    ],
)
async def test_an_invalid_spec_is_refused(api: ApiClient, defined: Cluster, spec: dict[str, Any]) -> None:
    await api.request("POST", PATH, body=incident_object.new_object("one"))
    with pytest.raises(ApiError) as refused:
        await api.request("PATCH", f"{PATH}/one", body={"spec": spec}, content_type=MERGE_PATCH)
    assert refused.value.status == 422


async def test_old_resolved_incidents_are_deleted(
    api: ApiClient, defined: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_KEEP_RESOLVED", 3)
    over = [
        replace(LOST, name=f"one-{days}", state=IncidentState.RESOLVED, resolved_at=NOW - days * DAY)
        for days in range(1, 7)
    ]
    async with running_writer(api) as (writers, writer, _):
        writer.set_desired([replace(incident, state=IncidentState.OPEN) for incident in over], NOW)
        await writers.until(lambda: len(writer.current_incidents()) == 6)
    async with running_writer(api) as (writers, writer, _):
        writer.set_desired([LOST, *over], NOW)
        await writers.until(
            lambda: (
                sum(incident.state is IncidentState.RESOLVED for incident in writer.current_incidents()) == 6
            )
        )
        for _ in range(3):
            writer.set_desired([LOST, *over], NOW)
            await writers.idle()
        await writers.until(
            lambda: (
                {incident.name for incident in writer.current_incidents()}
                == {LOST.name, "one-1", "one-2", "one-3"}
            )
        )
        writer.set_desired([LOST], NOW + 5.5 * DAY)
        await writers.until(
            lambda: {incident.name for incident in writer.current_incidents()} == {LOST.name, "one-1"}
        )
        writer.set_desired([LOST, *over], NOW)
        await writers.idle()
    assert set(await objects(api)) == {LOST.name, "one-1"}


async def test_the_largest_incident_fits(api: ApiClient, defined: Cluster) -> None:
    long = "\N{SNOWMAN}" * 100_000
    symptom = Symptom(long, long, Health.FATAL, long, (long,) * 50)
    fields = (
        "node",
        "uid",
        "domain",
        "target",
        "scope",
        "component",
        "cause",
        "fault_class",
        "message",
        "detail",
    )
    large = replace(LOST, symptoms=(symptom,) * 50, **dict.fromkeys(fields, long))
    async with running_writer(api) as (writers, writer, _):
        writer.set_desired([large], NOW)
        await writers.until(writer.current_incidents)
        writer.set_desired([large], NOW)
        await writers.idle()
    assert writers.messages == []
    raw = await api.request("GET", f"{PATH}/{LOST.name}")
    assert len(raw) < 512 * 1024


async def test_a_missing_definition_is_logged_once(api: ApiClient, controlplane: Cluster) -> None:
    try:
        controlplane.kubectl("delete", "crd", "nodeincidents.nodeguard.dev", "--ignore-not-found")
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
    # Until then, the server answers that the definition is being deleted.
    controlplane.until(lambda: not controlplane.has(PATH), "kube-apiserver")
    async with writing(api) as writers:
        writer = IncidentWriter(writers.client, writers.later)
        writer.synced()
        writer.set_desired([LOST], NOW)
        await writers.until(lambda: writers.messages)
        await asyncio.sleep(0.5)
        assert len(writers.messages) == 1
        controlplane.kubectl("apply", "-f", str(CRD))
        await writers.idle()
        # Meanwhile the server may return 429, because its storage is initializing.
        assert writers.messages[-1] == "INFO all writes succeed again"
