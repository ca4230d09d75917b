from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from nodeguard.kube import device_rules
from nodeguard.kube.client import MERGE, Api
from nodeguard.kube.device_rules import PATH, DeviceRules
from nodeguard.kube.devices import has_rules
from nodeguard.kube.rule_object import LABEL
from nodeguard.model.mark import EPOCH, STATE, DeviceRule
from nodeguard.model.node import Taint
from tests.controlplane.cluster import API, Cluster, cluster
from tests.controlplane.objects import node
from tests.kube.following import running
from tests.kube.writing import Writing, read, writing
from tests.waiting import PATIENCE

QUARANTINE = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")

Failed = list[tuple[DeviceRule, str]]


@asynccontextmanager
async def keeping(api: Api, epoch: int = 1) -> AsyncIterator[tuple[Writing, DeviceRules, Failed]]:
    failed: Failed = []
    async with writing(api, epoch) as made:
        rules = DeviceRules(made.permit, made.first, lambda rule, why: failed.append((rule, why)))
        watch = device_rules.watching(api, rules, made.told.append)
        async with running(watch):
            await made.until(lambda: watch.is_synced)
            yield made, rules, failed


async def rule(api: Api, controlplane: Cluster, device: str = "gpu-0") -> DeviceRule:
    """A rule for a device of a Node, which is made; nodeguard's of other tests are gone."""
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    uid = (await read(api, "gpu-7")).uid
    return DeviceRule("nodeguard-1", "gpu-7", uid, "gpu.nvidia.com", "gpu-7", device, QUARANTINE, '{"a":1}')


async def objects(api: Api) -> dict[str, Any]:
    found = json.loads(await api.request("GET", PATH))
    return {one["metadata"]["name"]: one for one in found["items"]}


async def until_there(api: Api, expected: dict[str, str]) -> None:
    """Wait until the cluster has these rules, by name with their devices, and no others."""
    async with asyncio.timeout(PATIENCE):
        while {
            name: one["spec"]["deviceSelector"]["device"] for name, one in (await objects(api)).items()
        } != expected:
            await asyncio.sleep(0.01)


async def test_rules_come_change_and_go(api: Api, controlplane: Cluster) -> None:
    one = await rule(api, controlplane)
    assert await has_rules(api)
    async with keeping(api, epoch=5) as (made, rules, _):
        rules.want([one])
        await made.until(lambda: rules.standing() == [one])
        written = (await objects(api))[one.name]
        assert written["metadata"]["annotations"] == {STATE: '{"a":1}', EPOCH: "5"}
        assert written["spec"]["taint"]["effect"] == "NoSchedule"
        other = replace(one, device="gpu-1", state="")
        rules.want([other])
        await made.until(lambda: rules.standing() == [other])
        await made.idle()
        for _ in range(3):
            rules.want([other])
        assert made.first.waiting == 0
        rules.want([])
        await until_there(api, {})
    assert made.told == []


async def test_what_stands_is_found_again(api: Api, controlplane: Cluster) -> None:
    one = await rule(api, controlplane)
    async with keeping(api) as (made, rules, _):
        rules.want([one])
        await until_there(api, {one.name: "gpu-0"})
    async with keeping(api) as (made, rules, _):
        assert rules.standing() == [one]
        # Before a plan nothing is touched.
        assert made.first.waiting == 0


async def test_ours_is_put_right_and_others_are_left_alone(api: Api, controlplane: Cluster) -> None:
    one = await rule(api, controlplane)
    async with keeping(api) as (made, rules, failed):
        rules.want([one])
        await until_there(api, {one.name: "gpu-0"})
        await made.idle()
        edited = {"spec": {"deviceSelector": {"device": "gpu-5"}, "taint": {"effect": "NoExecute"}}}
        await api.request("PATCH", f"{PATH}/{one.name}", body=edited, content=MERGE)
        await until_there(api, {one.name: "gpu-0"})
        assert (await objects(api))[one.name]["spec"]["taint"]["effect"] == "NoSchedule"
        await api.request("DELETE", f"{PATH}/{one.name}")
        await until_there(api, {one.name: "gpu-0"})

        foreign = {"metadata": {"labels": {LABEL: "somebody"}}}
        await api.request("PATCH", f"{PATH}/{one.name}", body=foreign, content=MERGE)
        await made.until(lambda: failed)
        assert failed[0][1].endswith("remove it, or give it the label app.kubernetes.io/managed-by=nodeguard")
        rules.want([])
        await made.idle()
        assert set(await objects(api)) == {one.name}
    assert len([line for line in made.told if "not nodeguard's" in line]) == 1
    assert made.told[-1] == "Writes: none fails any more with 409 (Foreign)"


async def test_a_later_leader_is_heeded(api: Api, controlplane: Cluster) -> None:
    one = await rule(api, controlplane)
    async with keeping(api, epoch=3) as (made, rules, _):
        rules.want([one])
        await until_there(api, {one.name: "gpu-0"})
    async with keeping(api, epoch=2) as (made, rules, _):
        rules.want([])
        await made.until(lambda: made.fenced)
        assert made.fenced[0].startswith("DeviceTaintRule nodeguard-1 was written under epoch 3")
    assert set(await objects(api)) == {one.name}


async def test_rules_that_take_too_much_are_not_written(api: Api, controlplane: Cluster) -> None:
    one = await rule(api, controlplane)
    async with keeping(api) as (made, rules, failed):
        rules.want(
            [replace(one, taint=replace(QUARANTINE, effect="NoExecute")), replace(one, name="b", device="")]
        )
        await made.idle()
        assert await objects(api) == {}
        assert len(failed) == 2


async def test_a_rule_goes_with_its_node(api: Api, controlplane: Cluster) -> None:
    one = await rule(api, controlplane)
    async with keeping(api) as (_, rules, _):
        rules.want([one])
        await until_there(api, {one.name: "gpu-0"})
    await api.request("DELETE", "/api/v1/nodes/gpu-7")
    await until_there(api, {})
    assert await objects(api) == {}


async def test_older_clusters_have_none() -> None:
    with cluster(API, {"kube-apiserver": ["--emulated-version=1.36"]}) as older:
        api = await Api.connect(str(older.kubeconfig))
        try:
            assert not await has_rules(api)
        finally:
            await api.close()
