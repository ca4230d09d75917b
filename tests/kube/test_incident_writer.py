from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.kube import incident_object
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.incident_writer import PATH, IncidentWriter
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision, Symptom
from tests.controlplane.cluster import Cluster
from tests.controlplane.defining import CRD, define_incidents
from tests.kube.following import running
from tests.kube.writing import Writing, writing
from tests.waiting import PATIENCE

NOW = 1_800_000_000.0
DAY = 86_400.0

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


@pytest.fixture
def defined(controlplane: Cluster) -> Cluster:
    """A control plane that knows incidents, and has none."""
    define_incidents(controlplane)
    return controlplane


@asynccontextmanager
async def keeping(
    api: ApiClient, **limits: Any
) -> AsyncIterator[tuple[Writing, IncidentWriter, list[OperatorDecision]]]:
    decisions: list[OperatorDecision] = []
    async with writing(api) as made:
        kept = IncidentWriter(made.permit, made.later, decisions.append, **limits)
        watch = incidents.watch_incidents(api, kept, made.told.append)
        async with running(watch):
            await made.until(lambda: watch.is_synced)
            yield made, kept, decisions


async def objects(api: ApiClient) -> dict[str, Any]:
    found = json.loads(await api.request("GET", PATH))
    return {one["metadata"]["name"]: one for one in found["items"]}


async def test_an_incident_comes_changes_and_is_kept(api: ApiClient, defined: Cluster) -> None:
    async with keeping(api) as (made, kept, _):
        kept.set_desired([LOST], NOW)
        await made.until(lambda: kept.current_incidents() == [LOST])
        await made.idle()
        one = (await objects(api))[LOST.name]
        assert one["status"]["where"] == "gpu-7"
        assert "domain" not in one["status"]

        for _ in range(3):
            kept.set_desired([LOST], NOW)
        assert made.later.pending == 0

        over = replace(LOST, state=IncidentState.RESOLVED, resolved=NOW, scope="", symptoms=())
        kept.set_desired([over], NOW)
        await made.until(lambda: kept.current_incidents() == [over])
        status = (await objects(api))[LOST.name]["status"]
        assert status["resolved"] == "2027-01-15T08:00:00Z"
        assert "symptoms" not in status
    assert made.told == []


async def test_the_end_of_an_incident_that_is_kept_no_longer_is_written(
    api: ApiClient, defined: Cluster
) -> None:
    async with keeping(api) as (made, kept, _):
        kept.set_desired([LOST], NOW)
        await made.until(lambda: kept.current_incidents() == [LOST])
        await made.idle()
        over = replace(LOST, state=IncidentState.RESOLVED, resolved=NOW, scope="", symptoms=())
        kept.set_desired([over, replace(over, name="never-written")], NOW)
        kept.set_desired([], NOW)
        await made.until(lambda: kept.current_incidents() == [over])
        await made.idle()
        assert (await objects(api)).keys() == {LOST.name}


async def test_it_looks_as_people_expect(api: ApiClient, defined: Cluster) -> None:
    rack = replace(
        LOST, name="leaf-77", node="", domain="fabric/leaf-7", cause="port-down", state=IncidentState.WITHHELD
    )
    async with keeping(api) as (made, kept, _):
        kept.set_desired([LOST, rack], NOW)
        await made.until(lambda: len(kept.current_incidents()) == 2)
    header, first, second = defined.kubectl("get", "incidents").splitlines()
    assert header.split() == ["NAME", "NODE", "CAUSE", "HEALTH", "STATE", "AGE"]
    assert first.split()[:5] == ["gpu-lost-3f2a", "gpu-7", "gpu-lost", "fatal", "Marked"]
    assert second.split()[:5] == ["leaf-77", "fabric/leaf-7", "port-down", "fatal", "Withheld"]
    selected = defined.kubectl("get", "incidents", "--field-selector", "status.node=gpu-7", "-o", "name")
    assert selected == "nodeincident.nodeguard.dev/gpu-lost-3f2a\n"
    assert "What to replace" in defined.kubectl("explain", "nodeincident.status")


async def test_people_decide(api: ApiClient, defined: Cluster) -> None:
    async with keeping(api) as (made, kept, decisions):
        kept.set_desired([LOST], NOW)
        await made.until(lambda: kept.current_incidents() == [LOST])
        patch = json.dumps({"spec": {"acknowledged": "ada: on it", "clear": "ada 2027-01-15: reseated"}})
        defined.kubectl("patch", "incident", LOST.name, "--type=merge", "-p", patch)
        await made.until(lambda: any(one.clear for one in decisions))
        assert decisions[-1] == OperatorDecision(LOST.name, "ada: on it", "ada 2027-01-15: reseated")
        count = len(decisions)
        kept.set_desired([replace(LOST, state=IncidentState.RECOVERING)], NOW)
        await made.until(lambda: kept.current_incidents()[0].state is IncidentState.RECOVERING)
        assert len(decisions) == count
    # Who comes later hears of it, too.
    async with keeping(api) as (_, _, decisions):
        assert decisions == [OperatorDecision(LOST.name, "ada: on it", "ada 2027-01-15: reseated")]


async def test_a_clear_does_not_count_for_a_fault_that_begins_later(api: ApiClient, defined: Cluster) -> None:
    over = replace(LOST, state=IncidentState.RESOLVED, resolved=NOW)
    async with keeping(api) as (made, kept, decisions):
        kept.set_desired([LOST], NOW)
        await made.until(lambda: kept.current_incidents() == [LOST])
        kept.set_desired([over], NOW)
        await made.until(lambda: kept.current_incidents() == [over])
        patch = json.dumps({"spec": {"acknowledged": "ada", "clear": "ada: reseated"}})
        defined.kubectl("patch", "incident", LOST.name, "--type=merge", "-p", patch)
        await made.until(lambda: any(one.clear for one in decisions))
        kept.set_desired([LOST], NOW)
        await made.until(lambda: kept.current_incidents() == [LOST])
        assert (await objects(api))[LOST.name]["spec"] == {"acknowledged": "ada"}
        defined.kubectl("patch", "incident", LOST.name, "--type=merge", "-p", patch)
        await made.until(lambda: decisions[-1].clear == "ada: reseated")
    async with keeping(api) as (_, _, decisions):
        assert decisions == [OperatorDecision(LOST.name, "ada", "ada: reseated")]


@pytest.mark.parametrize("spec", [{"clear": "x" * 257}, {"acknowledged": "two\nlines"}, {"clear": 1}])
async def test_what_people_may_not_write_is_refused(
    api: ApiClient, defined: Cluster, spec: dict[str, Any]
) -> None:
    await api.request("POST", PATH, body=incident_object.new_object("one"))
    with pytest.raises(ApiError) as refused:
        await api.request("PATCH", f"{PATH}/one", body={"spec": spec}, content_type=MERGE_PATCH)
    assert refused.value.status == 422


async def test_what_people_change_or_remove_is_put_right(api: ApiClient, defined: Cluster) -> None:
    async with keeping(api) as (made, kept, _):
        kept.set_desired([LOST], NOW)
        await made.until(lambda: kept.current_incidents() == [LOST])
        await made.idle()
        wrong = {"status": {"state": "Resolved", "message": "all is well", "symptoms": None}}
        right = (await objects(api))[LOST.name]["status"]
        await api.request("PATCH", f"{PATH}/{LOST.name}/status", body=wrong, content_type=MERGE_PATCH)
        async with asyncio.timeout(PATIENCE):
            while (await objects(api))[LOST.name]["status"] != right:
                await asyncio.sleep(0.01)

        uid = (await objects(api))[LOST.name]["metadata"]["uid"]
        await api.request("DELETE", f"{PATH}/{LOST.name}")
        async with asyncio.timeout(PATIENCE):
            while not (one := (await objects(api)).get(LOST.name)) or "status" not in one:
                await asyncio.sleep(0.01)
        assert one["metadata"]["uid"] != uid


async def test_what_was_resolved_long_ago_goes(api: ApiClient, defined: Cluster) -> None:
    over = [
        replace(LOST, name=f"one-{days}", state=IncidentState.RESOLVED, resolved=NOW - days * DAY)
        for days in range(1, 7)
    ]
    async with keeping(api) as (made, kept, _):
        kept.set_desired([replace(one, state=IncidentState.OPEN) for one in over], NOW)
        await made.until(lambda: len(kept.current_incidents()) == 6)
    async with keeping(api, keep=3, within=10 * DAY) as (made, kept, _):
        kept.set_desired([LOST, *over], NOW)
        await made.until(
            lambda: sum(one.state is IncidentState.RESOLVED for one in kept.current_incidents()) == 6
        )
        for _ in range(3):
            kept.set_desired([LOST, *over], NOW)
            await made.idle()
        await made.until(
            lambda: {one.name for one in kept.current_incidents()} == {LOST.name, "one-1", "one-2", "one-3"}
        )
        kept.set_desired([LOST], NOW + 8.5 * DAY)
        await made.until(lambda: {one.name for one in kept.current_incidents()} == {LOST.name, "one-1"})
        kept.set_desired([LOST, *over], NOW)
        await made.idle()
    assert set(await objects(api)) == {LOST.name, "one-1"}


async def test_the_largest_fits(api: ApiClient, defined: Cluster) -> None:
    long = "\N{SNOWMAN}" * 100_000
    symptom = Symptom(long, long, Health.FATAL, long, (long,) * 50)
    fields = ("node", "uid", "domain", "resource", "scope", "part", "cause", "word", "message", "detail")
    large = replace(LOST, symptoms=(symptom,) * 50, **dict.fromkeys(fields, long))
    async with keeping(api) as (made, kept, _):
        kept.set_desired([large], NOW)
        await made.until(kept.current_incidents)
        kept.set_desired([large], NOW)
        await made.idle()
    assert made.told == []
    raw = await api.request("GET", f"{PATH}/{LOST.name}")
    assert len(raw) < 512 * 1024


async def test_without_the_definition_it_is_told_once(api: ApiClient, controlplane: Cluster) -> None:
    try:
        controlplane.kubectl("delete", "crd", "nodeincidents.nodeguard.dev", "--ignore-not-found")
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
    async with writing(api) as made:
        kept = IncidentWriter(made.permit, made.later, lambda _: None)
        kept.synced()
        kept.set_desired([LOST], NOW)
        await made.until(lambda: made.told)
        await asyncio.sleep(0.5)
        assert len(made.told) == 1
        controlplane.kubectl("apply", "-f", str(CRD))
        await made.idle()
        # On the way the server may say 429, that its storage is initializing.
        assert "Writes: none fails any more with 404 (NotFound)" in made.told
        assert made.told[-1].startswith("Writes: none fails any more")
