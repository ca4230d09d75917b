from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.kube import device_rules
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.device_rules import MANAGED_BY_LABEL, PATH, DeviceRuleWriter
from nodeguard.kube.devices import serves_device_rules
from nodeguard.model.mark import EPOCH_ANNOTATION, STATE_ANNOTATION
from nodeguard.model.node import Taint
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.kube.following import running
from tests.kube.writing import Writing, read, writing
from tests.waiting import PATIENCE

QUARANTINE = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")


@asynccontextmanager
async def running_writer(api: ApiClient, epoch: int = 1) -> AsyncIterator[tuple[Writing, DeviceRuleWriter]]:
    async with writing(api, epoch) as writers:
        rules = DeviceRuleWriter(writers.client, writers.first, lambda *_: None)
        watch = device_rules.watch_rules(api, rules)
        async with running(watch):
            await writers.until(lambda: watch.is_synced)
            yield writers, rules


async def rule(api: ApiClient, controlplane: Cluster, device: str = "gpu-0") -> DeviceRule:
    """Create a Node and return a rule for one of its devices. Delete all existing rules."""
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    uid = (await read(api, "gpu-7")).uid
    return DeviceRule("nodeguard-1", "gpu-7", uid, "gpu.nvidia.com", "gpu-7", device, QUARANTINE, '{"a":1}')


async def objects(api: ApiClient) -> dict[str, Any]:
    listed = json.loads(await api.request("GET", PATH))
    return {wanted_rule["metadata"]["name"]: wanted_rule for wanted_rule in listed["items"]}


async def until_there(api: ApiClient, expected: dict[str, str]) -> None:
    """Wait until the cluster has exactly these rules: devices by name."""
    async with asyncio.timeout(PATIENCE):
        while {
            name: wanted_rule["spec"]["deviceSelector"]["device"]
            for name, wanted_rule in (await objects(api)).items()
        } != expected:
            await asyncio.sleep(0.01)


async def test_rules_are_created_changed_and_deleted(api: ApiClient, controlplane: Cluster) -> None:
    wanted_rule = await rule(api, controlplane)
    assert await serves_device_rules(api)
    async with running_writer(api, epoch=5) as (writers, rules):
        rules.set_desired([wanted_rule])
        await writers.until(lambda: rules.current_rules() == [wanted_rule])
        written = (await objects(api))[wanted_rule.name]
        assert written["metadata"]["annotations"] == {STATE_ANNOTATION: '{"a":1}', EPOCH_ANNOTATION: "5"}
        assert written["spec"]["taint"]["effect"] == "NoSchedule"
        other = replace(wanted_rule, device="gpu-1", state="")
        rules.set_desired([other])
        await writers.until(lambda: rules.current_rules() == [other])
        await writers.idle()
        for _ in range(3):
            rules.set_desired([other])
        assert writers.first.pending == 0
        rules.set_desired([])
        await until_there(api, {})
    assert writers.messages == []


async def test_a_rule_that_another_client_deletes_each_time_is_written_once_a_minute(
    api: ApiClient, controlplane: Cluster
) -> None:
    wanted_rule, deleted = await rule(api, controlplane), 0
    async with running_writer(api) as (writers, rules):
        rules.set_desired([wanted_rule])
        async with asyncio.timeout(PATIENCE):
            while not any(
                "each time: nodeguard writes it once a minute" in line for line in writers.messages
            ):
                if wanted_rule.name in await objects(api) and not writers.first.pending:
                    await api.request("DELETE", f"{PATH}/{wanted_rule.name}")
                    deleted += 1
                await asyncio.sleep(0.01)
    assert deleted == 6


async def test_a_response_that_arrives_after_a_newer_event_is_not_used(
    api: ApiClient, controlplane: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted_rule = await rule(api, controlplane)
    async with running_writer(api) as (writers, rules):
        write = writers.client.write

        async def delayed(method: str, *arguments: Any) -> bytes:
            response = await write(method, *arguments)
            if method == "POST":
                body = {"metadata": {"annotations": {STATE_ANNOTATION: "changed"}}}
                await api.request("PATCH", f"{PATH}/{wanted_rule.name}", body=body, content_type=MERGE_PATCH)
                await writers.until(
                    lambda: [current.state for current in rules.current_rules()] == ["changed"]
                )
            return response

        monkeypatch.setattr(writers.client, "write", delayed)
        rules.set_desired([wanted_rule])
        await writers.idle()
        rules.set_desired([wanted_rule])
        await writers.until(lambda: rules.current_rules() == [wanted_rule])
        annotations = (await objects(api))[wanted_rule.name]["metadata"]["annotations"]
        assert annotations[STATE_ANNOTATION] == wanted_rule.state
        rules.set_desired([])
        await until_there(api, {})
    assert writers.messages == []


async def test_existing_rules_are_not_written_again(api: ApiClient, controlplane: Cluster) -> None:
    wanted_rule = await rule(api, controlplane)
    async with running_writer(api) as (writers, rules):
        rules.set_desired([wanted_rule])
        await until_there(api, {wanted_rule.name: "gpu-0"})
    async with running_writer(api) as (writers, rules):
        assert rules.current_rules() == [wanted_rule]
        # Before a plan nothing is touched.
        assert writers.first.pending == 0


async def test_own_rules_are_corrected_and_foreign_rules_are_not_changed(
    api: ApiClient, controlplane: Cluster
) -> None:
    wanted_rule = await rule(api, controlplane)
    async with running_writer(api) as (writers, rules):
        rules.set_desired([wanted_rule])
        await until_there(api, {wanted_rule.name: "gpu-0"})
        await writers.idle()
        edited = {"spec": {"deviceSelector": {"device": "gpu-5"}, "taint": {"effect": "NoExecute"}}}
        await api.request("PATCH", f"{PATH}/{wanted_rule.name}", body=edited, content_type=MERGE_PATCH)
        await until_there(api, {wanted_rule.name: "gpu-0"})
        assert (await objects(api))[wanted_rule.name]["spec"]["taint"]["effect"] == "NoSchedule"
        await api.request("DELETE", f"{PATH}/{wanted_rule.name}")
        await until_there(api, {wanted_rule.name: "gpu-0"})

        foreign = {"metadata": {"labels": {MANAGED_BY_LABEL: "other"}}}
        await api.request("PATCH", f"{PATH}/{wanted_rule.name}", body=foreign, content_type=MERGE_PATCH)
        await writers.until(lambda: writers.messages)
        assert writers.messages[0].endswith(
            "delete it, or give it the label app.kubernetes.io/managed-by=nodeguard"
        )
        rules.set_desired([])
        await writers.idle()
        assert set(await objects(api)) == {wanted_rule.name}
    assert len([line for line in writers.messages if "does not belong to nodeguard" in line]) == 1
    assert writers.messages[-1] == "INFO all writes succeed again"


async def test_writes_end_when_a_later_leader_has_written(api: ApiClient, controlplane: Cluster) -> None:
    wanted_rule = await rule(api, controlplane)
    async with running_writer(api, epoch=3) as (writers, rules):
        rules.set_desired([wanted_rule])
        await until_there(api, {wanted_rule.name: "gpu-0"})
    async with running_writer(api, epoch=2) as (writers, rules):
        rules.set_desired([])
        await writers.until(lambda: writers.client.is_fenced)
        assert "object=DeviceTaintRule nodeguard-1 epoch=3" in writers.messages[0]
    assert set(await objects(api)) == {wanted_rule.name}


async def test_unsafe_rules_are_not_written(api: ApiClient, controlplane: Cluster) -> None:
    wanted_rule = await rule(api, controlplane)
    async with running_writer(api) as (writers, rules):
        rules.set_desired(
            [
                replace(wanted_rule, taint=replace(QUARANTINE, effect="NoExecute")),
                replace(wanted_rule, name="b", device=""),
            ]
        )
        await writers.idle()
        assert await objects(api) == {}
        assert len(writers.messages) == 2


async def test_a_rule_is_deleted_with_its_node(api: ApiClient, controlplane: Cluster) -> None:
    wanted_rule = await rule(api, controlplane)
    async with running_writer(api) as (_, rules):
        rules.set_desired([wanted_rule])
        await until_there(api, {wanted_rule.name: "gpu-0"})
    await api.request("DELETE", "/api/v1/nodes/gpu-7")
    await until_there(api, {})
    assert await objects(api) == {}


async def test_older_clusters_have_no_device_rules(older_api: ApiClient) -> None:
    assert not await serves_device_rules(older_api)
