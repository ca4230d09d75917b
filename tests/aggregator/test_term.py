"""What writes while a lease is held, on a real control plane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio
from msgspec.structs import replace

from nodeguard.aggregator.outbox import Outbox
from nodeguard.aggregator.world.cluster import Cluster as World
from nodeguard.aggregator.world.term import Term, monotonic
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.kube import rule_object
from nodeguard.kube.client import Api
from nodeguard.kube.device_rules import PATH
from nodeguard.kube.lease import Lease
from nodeguard.kube.permit import JSON
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DeviceRule
from nodeguard.model.node import Taint
from nodeguard.model.policy import Hold
from tests.aggregator.test_hearing import report
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.kube.writing import read
from tests.waiting import PATIENCE


@pytest_asyncio.fixture
async def api(controlplane: Cluster) -> AsyncIterator[Api]:
    made = await Api.connect(str(controlplane.kubeconfig))
    yield made
    await made.close()


@asynccontextmanager
async def leading(api: Api, namespace: str) -> AsyncIterator[Term]:
    told: list[str] = []
    lease = Lease(api, namespace, "nodeguard-aggregator", "pod-1", told.append)
    assert await lease.renew(monotonic())
    term = Term(api, lease, "pod-1", lambda _: None, lambda _: None, told.append)
    try:
        yield term
    finally:
        await term.end()


def rule(controlplane: Cluster, device: str) -> DeviceRule:
    """A rule for a device of a Node, which is made where it is not there; no other rule is."""
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    uid = controlplane.api.get("/api/v1/nodes/gpu-7")["metadata"]["uid"]
    taint = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")
    return DeviceRule(f"nodeguard-{device}", "gpu-7", uid, "gpu.nvidia.com", "gpu-7", device, taint, "{}")


async def until(api: Api, term: Term, expected: list[str]) -> list[str]:
    """Tell of the rules that there are, in place of a watch, until they are of these devices; which they are."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = json.loads(await api.request("GET", PATH))["items"]
            devices = sorted(one["spec"]["deviceSelector"]["device"] for one in found)
            if devices == expected:
                return devices
            for one in found:
                term.rule(rule_object.seen(json.dumps(one).encode()))
            await asyncio.sleep(0.01)


async def made(api: Api, one: DeviceRule, epoch: int = 1) -> rule_object.Seen:
    body = rule_object.written(one, epoch)
    return rule_object.seen(await api.request("POST", PATH, body=body, content=JSON))


async def test_rules_that_are_told_of_late_stand(api: Api, controlplane: Cluster, namespace: str) -> None:
    standing = await made(api, rule(controlplane, "gpu-0"))
    async with leading(api, namespace) as term:
        term.know((), ())
        term.rule(standing)
        for number in range(1, 4):
            term.carry_out(Plan(rules=(_other(standing.rule, f"gpu-{number}"),)), tuple, 0.0)
            await until(api, term, [f"gpu-{at}" for at in range(number + 1)])
        term.carry_out(Plan(rules_gone=(standing.rule.name,)), tuple, 0.0)
        assert await until(api, term, ["gpu-1", "gpu-2", "gpu-3"])


async def test_a_lease_outgrows_the_epoch_of_a_rule(api: Api, controlplane: Cluster, namespace: str) -> None:
    standing = await made(api, rule(controlplane, "gpu-0"), epoch=57)
    told: list[str] = []
    planner = Planner(AT_ONCE, CHECKS)
    world = World(api, namespace, "pod-1", planner, Outbox(), news=lambda: None, tell=told.append)
    try:
        world.rule(standing)
        assert await world.lead(monotonic())
        assert any("epoch 58" in one for one in told)
    finally:
        await world.close()


async def test_what_waits_is_planned_anew_under_another_policy(
    api: Api, controlplane: Cluster, namespace: str
) -> None:
    planner = Planner(AT_ONCE, CHECKS)
    world = World(api, namespace, "pod-1", planner, Outbox(), news=lambda: None, tell=lambda _: None)
    moment = Instant(1_700_000_000.0, 10.0, "")
    names = "gpu-8", "gpu-9"
    try:
        for name in names:
            controlplane.api.post("/api/v1/nodes", node(name))
            there = await read(api, name)
            world.node(there)
            planner.hear(there.uid, report(fatal=True), moment)
        assert await world.lead(monotonic())
        world.carry_out(planner.plan(moment), moment)
        assert len(planner.roster.pending()) == 2
        planner.adopt(replace(AT_ONCE, holds=(Hold(node="gpu-8"),)))
        world.reconsider()
        assert planner.roster.pending() == ()
        world.carry_out(planner.plan(moment), moment)
        async with asyncio.timeout(PATIENCE):
            while not (await read(api, "gpu-9")).annotations:
                await asyncio.sleep(0.01)
        assert not (await read(api, "gpu-8")).annotations
    finally:
        await world.close()


async def test_what_waits_for_a_device_is_forgotten_with_its_node(
    api: Api, controlplane: Cluster, namespace: str
) -> None:
    standing = await made(api, rule(controlplane, "gpu-0"))
    async with leading(api, namespace) as term:
        term.know((standing,), ())
        waiting = tuple(_other(standing.rule, f"gpu-{number}") for number in range(1, 9))
        term.carry_out(Plan(rules=waiting), tuple, 0.0)
        term.forget([standing.rule.uid])
        last = _other(standing.rule, "gpu-9")
        term.carry_out(Plan(rules=(last,)), tuple, 0.0)
        assert await until(api, term, ["gpu-0", "gpu-9"])


def _other(one: DeviceRule, device: str) -> DeviceRule:
    return replace(one, name=f"nodeguard-{device}", device=device)
