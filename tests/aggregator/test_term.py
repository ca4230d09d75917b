"""What writes while a lease is held, on a real control plane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio
from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes import KubernetesBackend as World
from nodeguard.aggregator.backends.leader import Leader
from nodeguard.aggregator.clock import monotonic
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.kube import device_rule_object as rule_object
from nodeguard.kube.client import ApiClient
from nodeguard.kube.device_rule_writer import PATH
from nodeguard.kube.fenced_client import JSON
from nodeguard.kube.lease import Lease
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DeviceRule
from nodeguard.model.node import Taint
from nodeguard.model.policy import Hold
from tests.aggregator.test_report_handler import report
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.kube.writing import read
from tests.waiting import PATIENCE


@pytest_asyncio.fixture
async def api(controlplane: Cluster) -> AsyncIterator[ApiClient]:
    made = await ApiClient.connect(str(controlplane.kubeconfig))
    yield made
    await made.close()


@asynccontextmanager
async def leading(api: ApiClient, namespace: str) -> AsyncIterator[Leader]:
    told: list[str] = []
    lease = Lease(api, namespace, "nodeguard-aggregator", "pod-1", told.append)
    assert await lease.renew(monotonic())
    term = Leader(api, lease, "pod-1", lambda _: None, lambda _: None, told.append)
    try:
        yield term
    finally:
        await term.stop()


def rule(controlplane: Cluster, device: str) -> DeviceRule:
    """A rule for a device of a Node, which is made where it is not there; no other rule is."""
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    uid = controlplane.api.get("/api/v1/nodes/gpu-7")["metadata"]["uid"]
    taint = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")
    return DeviceRule(f"nodeguard-{device}", "gpu-7", uid, "gpu.nvidia.com", "gpu-7", device, taint, "{}")


async def until(api: ApiClient, term: Leader, expected: list[str]) -> list[str]:
    """Tell of the rules that there are, in place of a watch, until they are of these devices; which they are."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = json.loads(await api.request("GET", PATH))["items"]
            devices = sorted(one["spec"]["deviceSelector"]["device"] for one in found)
            if devices == expected:
                return devices
            for one in found:
                term.rule_changed(rule_object.decode_rule(json.dumps(one).encode()))
            await asyncio.sleep(0.01)


async def made(api: ApiClient, one: DeviceRule, epoch: int = 1) -> rule_object.ObservedRule:
    body = rule_object.rule_body(one, epoch)
    return rule_object.decode_rule(await api.request("POST", PATH, body=body, content_type=JSON))


async def test_rules_that_are_told_of_late_stand(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    standing = await made(api, rule(controlplane, "gpu-0"))
    async with leading(api, namespace) as term:
        term.add_existing((), ())
        term.rule_changed(standing)
        for number in range(1, 4):
            term.apply_plan(Plan(rules=(_other(standing.rule, f"gpu-{number}"),)), tuple, 0.0)
            await until(api, term, [f"gpu-{at}" for at in range(number + 1)])
        term.apply_plan(Plan(rules_gone=(standing.rule.name,)), tuple, 0.0)
        assert await until(api, term, ["gpu-1", "gpu-2", "gpu-3"])


async def test_a_lease_outgrows_the_epoch_of_a_rule(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    standing = await made(api, rule(controlplane, "gpu-0"), epoch=57)
    told: list[str] = []
    planner = Planner(AT_ONCE, CHECKS)
    world = World(api, namespace, "pod-1", planner, InstructionOutbox(), wake=lambda: None, log=told.append)
    try:
        world.rule_changed(standing)
        assert await world.renew_leadership(monotonic())
        assert any("epoch 58" in one for one in told)
    finally:
        await world.close()


async def test_what_waits_is_planned_anew_under_another_policy(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    planner = Planner(AT_ONCE, CHECKS)
    world = World(
        api, namespace, "pod-1", planner, InstructionOutbox(), wake=lambda: None, log=lambda _: None
    )
    moment = Instant(1_700_000_000.0, 10.0, "")
    names = "gpu-8", "gpu-9"
    try:
        for name in names:
            controlplane.api.post("/api/v1/nodes", node(name))
            there = await read(api, name)
            world.node_changed(there)
            planner.record_report(there.uid, report(fatal=True), moment)
        assert await world.renew_leadership(monotonic())
        world.apply_plan(planner.plan(moment), moment)
        assert len(planner.state.pending_nodes()) == 2
        planner.set_policy(replace(AT_ONCE, holds=(Hold(node="gpu-8"),)))
        world.policy_changed()
        assert planner.state.pending_nodes() == ()
        world.apply_plan(planner.plan(moment), moment)
        async with asyncio.timeout(PATIENCE):
            while not (await read(api, "gpu-9")).annotations:
                await asyncio.sleep(0.01)
        assert not (await read(api, "gpu-8")).annotations
    finally:
        await world.close()


async def test_what_waits_for_a_device_is_forgotten_with_its_node(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    standing = await made(api, rule(controlplane, "gpu-0"))
    async with leading(api, namespace) as term:
        term.add_existing((standing,), ())
        waiting = tuple(_other(standing.rule, f"gpu-{number}") for number in range(1, 9))
        term.apply_plan(Plan(rules=waiting), tuple, 0.0)
        term.forget([standing.rule.uid])
        last = _other(standing.rule, "gpu-9")
        term.apply_plan(Plan(rules=(last,)), tuple, 0.0)
        assert await until(api, term, ["gpu-0", "gpu-9"])


def _other(one: DeviceRule, device: str) -> DeviceRule:
    return replace(one, name=f"nodeguard-{device}", device=device)
