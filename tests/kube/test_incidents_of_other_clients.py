"""Incidents that another client overwrites, resolves or deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.incident_writer import PATH
from nodeguard.model.incident import IncidentState
from tests.controlplane.cluster import Cluster
from tests.kube.incident_writing import LOST, NOW, objects, running_writer, write_lost
from tests.waiting import PATIENCE


async def test_changed_and_deleted_objects_are_written_again(api: ApiClient, defined: Cluster) -> None:
    async with running_writer(api) as (writers, writer, _):
        await write_lost(writers, writer)
        wrong = {"status": {"state": "Resolved", "message": "all is well", "symptoms": None}}
        right = (await objects(api))[LOST.name]["status"]
        await api.request("PATCH", f"{PATH}/{LOST.name}/status", body=wrong, content_type=MERGE_PATCH)
        async with asyncio.timeout(PATIENCE):
            while (await objects(api))[LOST.name]["status"] != right:
                await asyncio.sleep(0.01)

        uid = (await objects(api))[LOST.name]["metadata"]["uid"]
        await api.request("DELETE", f"{PATH}/{LOST.name}")
        async with asyncio.timeout(PATIENCE):
            while not (incident := (await objects(api)).get(LOST.name)) or "status" not in incident:
                await asyncio.sleep(0.01)
        assert incident["metadata"]["uid"] != uid


async def test_an_open_incident_that_another_client_resolves_is_not_deleted(
    api: ApiClient, defined: Cluster
) -> None:
    async with running_writer(api) as (writers, writer, _):
        await write_lost(writers, writer)
        uid = writer.object_uid(LOST.name)
        writers.may = False
        await overwrite(api)
        await writers.until(lambda: writer.current_incidents() != [LOST])
        writer.set_desired([LOST], NOW)
        writers.may = True
        await writers.until(lambda: writer.current_incidents() == [LOST])
        assert writer.object_uid(LOST.name) == uid


async def delete(api: ApiClient) -> None:
    await api.request("DELETE", f"{PATH}/{LOST.name}")


async def overwrite(api: ApiClient) -> None:
    body = {"status": {"state": "Resolved", "message": "all is well"}}
    await api.request("PATCH", f"{PATH}/{LOST.name}/status", body=body, content_type=MERGE_PATCH)


@pytest.mark.parametrize("undo", [delete, overwrite])
async def test_an_incident_that_another_client_changes_each_time_is_written_once_a_minute(
    api: ApiClient, defined: Cluster, undo: Callable[[ApiClient], Awaitable[None]]
) -> None:
    undone = 0
    async with running_writer(api) as (writers, writer, _):
        writer.set_desired([LOST], NOW)
        async with asyncio.timeout(PATIENCE):
            while not any(
                "each time: nodeguard writes it once a minute" in line for line in writers.messages
            ):
                if writer.current_incidents() == [LOST] and not writers.later.pending:
                    await undo(api)
                    undone += 1
                await asyncio.sleep(0.01)
        # The first write is no repetition.
        assert undone == 6
        # What changes is written at once.
        writer.set_desired([replace(LOST, state=IncidentState.RECOVERING)], NOW)
        await writers.until(lambda: [item.state for item in writer.current_incidents()] == ["Recovering"])
