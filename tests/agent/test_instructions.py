"""Detached GPUs, with the double of libnvidia-ml as the driver, and cleared findings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.agent import Agent
from nodeguard.agent.instructions import (
    DetachedGpus,
    FindingClearer,
    GpuDetacher,
    detach,
    detached_targets,
    seconds_until_change,
)
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import DataStatus
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import Machine
from nodeguard.sources.machines import live
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.nvml import NvmlSource
from nodeguard.wire.instruction import ClearFinding, DetachGpus
from nodeguard.worker.lane import WorkerLane, nvml_lane
from nodeguard.worker.progress import Deadlines
from tests.agent.scene import Scripted, workers
from tests.nvml_double import Build, Double
from tests.pipeline.test_pipeline import LOW, judgement
from tests.sources.fake_machine import FakeMachine
from tests.waiting import PATIENCE, until_async
from tests.worker import recordings

GPU, OTHER = "gpu/0000:01:00", "gpu/0000:02:00"


class Node:
    """An agent on two GPUs."""

    def __init__(self, root: Path, detached: DetachedGpus) -> None:
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("boot\n")
        (root / "dev").mkdir()
        (root / "dev/nvidiactl").touch()
        self.machine = LiveMachine(str(root))
        self.source = NvmlSource()
        self.agent = Agent(self.machine, [self.source], Pipeline(*load_catalogue(), PlatformHints()), 0.0)
        self.gpus = GpuDetacher(self.agent, self.source, self.machine.detach_gpus, detached)

    def data_status(self) -> DataStatus | None:
        return self.agent.verdict.data_status if self.agent.verdict else None

    def statuses(self) -> dict[str, str]:
        return {
            observation.target: observation.status
            for observation in self.agent.latest["nvml"].observations
            if "/nvlink/" not in observation.target
        }


@asynccontextmanager
async def watching(root: Path, detached: DetachedGpus = DetachedGpus()) -> AsyncIterator[Node]:  # noqa: B008 - frozen
    node = Node(root, detached)
    node.gpus.apply()
    running = asyncio.ensure_future(node.agent.run())
    try:
        await until_async(lambda: node.agent.verdict)
        yield node
    finally:
        node.agent.stop()
        await running
        node.machine.close()


def driver(second: dict[str, Any] | None = None) -> dict[str, Any]:
    """The driver of two GPUs. second: additional results of the second."""
    devices = [recordings.hopper(index, links=0) for index in range(2)]
    devices[1] |= second or {}
    return {"system": recordings.SYSTEM, "devices": devices}


@pytest.fixture
def double(nvml_double: Build, monkeypatch: pytest.MonkeyPatch) -> Double:
    double = nvml_double(driver())

    def lane(**more: Any) -> WorkerLane:
        return nvml_lane(str(double.path), **more)

    monkeypatch.setattr(live, "nvml_lane", lane)
    return double


@pytest.mark.usefixtures("double")
async def test_detaching_ends_the_worker_before_the_response(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        assert node.statuses() == {"node": "read", GPU: "read", OTHER: "read"}
        assert len(workers()) == 1
        answer = await node.gpus.carry_out(DetachGpus("1", 60.0))
        assert (answer.done, answer.message, workers()) == (True, "all GPUs", [])
        await until_async(lambda: node.data_status() is DataStatus.NOT_APPLICABLE)
        node.agent.read("nvml", together=0.0)
        await until_async(lambda: not node.agent.is_reading("nvml"))
        assert workers() == []
        assert (await node.gpus.carry_out(DetachGpus("2", 0.0))).done
        # A scheduled reading may fall between the instruction and its close: its worker ends, the next one starts.
        await until_async(lambda: node.data_status() is DataStatus.FRESH and len(workers()) == 1)


@pytest.mark.usefixtures("double")
async def test_one_detached_gpu_and_the_others_are_read(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        [before] = workers()
        assert (await node.gpus.carry_out(DetachGpus("1", 60.0, ("02:00",)))).message == OTHER
        await until_async(lambda: node.statuses() == {"node": "read", GPU: "read", OTHER: "detached"})
        assert workers() != [before]
        assert (await node.gpus.carry_out(DetachGpus("2", 60.0, (GPU,)))).message == GPU
        await until_async(lambda: node.statuses() == {"node": "read", GPU: "detached", OTHER: "detached"})


@pytest.mark.parametrize("detaches", [True, False], ids=["another one detached", "only attached"])
async def test_a_stalled_gpu_is_read_again_after_attach(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, detaches: bool
) -> None:
    deadlines = Deadlines(call=0.5, first=PATIENCE, grace=PATIENCE)
    monkeypatch.setattr(live, "nvml_lane", partial(nvml_lane, str(double.path), deadlines=deadlines))
    double.answer(driver({"nvmlDeviceGetEccMode": {"error": "stall"}}))
    async with watching(tmp_path) as node:
        assert node.statuses() == {"node": "read", GPU: "read", OTHER: "hung"}
        if detaches:
            assert (await node.gpus.carry_out(DetachGpus("1", 60.0, (GPU,)))).done
            await until_async(lambda: node.statuses() == {"node": "read", GPU: "detached", OTHER: "hung"})
        double.answer(driver())
        assert (await node.gpus.carry_out(DetachGpus("2", 0.0))).done
        await until_async(lambda: node.statuses() == {"node": "read", GPU: "read", OTHER: "read"})


@pytest.mark.usefixtures("double")
async def test_a_detachment_ends_by_itself_and_survives_a_restart(tmp_path: Path) -> None:
    hour = LiveMachine().now().mono + 3600.0
    async with watching(tmp_path, DetachedGpus("boot", {NODE: hour})) as node:
        assert (node.data_status(), workers()) == (DataStatus.NOT_APPLICABLE, [])
        soon = node.agent.now().mono + 0.2
        node.gpus.detached = DetachedGpus("boot", {NODE: soon})
        node.gpus.apply()
        await until_async(lambda: node.data_status() is DataStatus.FRESH)
        assert node.agent.now().mono >= soon


@pytest.mark.usefixtures("double")
async def test_invalid_instructions_are_refused(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        unknown = await node.gpus.carry_out(DetachGpus("1", 60.0, ("99:00",)))
        assert unknown.message == f"99:00 is not a GPU of this node; the GPUs are: {GPU}, {OTHER}"
        assert not (await node.gpus.carry_out(DetachGpus("1", 1e6))).done
        assert node.gpus.detached == DetachedGpus()
        none = GpuDetacher(node.agent, None, node.machine.detach_gpus, DetachedGpus())
        assert "there is nothing to detach" in (await none.carry_out(DetachGpus("1", 60.0))).message


def at(mono: float) -> Instant:
    return Instant(1e9 + mono, mono, "boot")


@pytest.mark.parametrize(
    ("detached", "slots"),
    [
        (DetachedGpus(), set()),
        (DetachedGpus("boot", {NODE: 11.0}), {NODE}),
        (DetachedGpus("boot", {GPU: 11.0, OTHER: 9.0}), {GPU}),
        (DetachedGpus("boot", {NODE: 10.0}), set()),
        (DetachedGpus("boot before", {NODE: 11.0}), set()),
    ],
)
def test_detached_targets_at_a_time(detached: DetachedGpus, slots: set[str]) -> None:
    assert detached_targets(detached, at(10.0)) == slots


def test_a_second_detachment_keeps_the_first() -> None:
    both = detach(detach(DetachedGpus(), [GPU], 60.0, at(0.0)), [OTHER], 30.0, at(10.0))
    assert both == DetachedGpus("boot", {GPU: 60.0, OTHER: 40.0})
    assert seconds_until_change(both, at(10.0)) == 30.0
    assert detach(both, [], 5.0, at(50.0)) == DetachedGpus("boot", {GPU: 60.0, NODE: 55.0})
    assert seconds_until_change(DetachedGpus(), at(0.0)) is None


@given(st.lists(st.tuples(st.sampled_from([GPU, OTHER]), st.floats(0.1, 100.0)), max_size=8))
def test_at_the_next_change_fewer_targets_are_detached(detachments: list[tuple[str, float]]) -> None:
    detached = DetachedGpus()
    for slot, seconds in detachments:
        detached = detach(detached, [slot], seconds, at(0.0))
    wait = seconds_until_change(detached, at(0.0))
    assert (wait is None) == (not detachments)
    if wait is not None:
        assert detached_targets(detached, at(wait)) < detached_targets(detached, at(0.0))


class EventNode:
    """An agent with an event in its log, and a level that is too low."""

    def __init__(self) -> None:
        self.judgement = judgement(LOW, EventOccurred("a.happened"))
        machine: Any = FakeMachine()
        self.is_logged = False
        sources = [Scripted("kmsg", self.log), Scripted("memory", self.level)]
        self.agent = Agent(machine, sources, self.judgement, 0.0)

    def log(self, machine: Machine) -> Iterator[Observation]:
        if not self.is_logged:
            yield Observation("kmsg", "node", events=(Event("a.happened", machine.now().mono, "it broke"),))
        self.is_logged = True

    def level(self, _: Machine) -> Iterator[Observation]:
        yield Observation("memory", "node", signals={"a.level": 3})

    def checks(self) -> list[str]:
        return sorted(finding.check for finding in self.agent.verdict.findings) if self.agent.verdict else []


@pytest.mark.parametrize("target", ["node", "5"])
async def test_an_event_is_cleared_at_once_and_a_reading_is_not(target: str) -> None:
    node = EventNode()
    clearer = FindingClearer(node.agent, node.judgement, lambda: {"5": "node"})
    running = asyncio.ensure_future(node.agent.run())
    async with asyncio.timeout(PATIENCE):
        outcome = await clearer.carry_out(ClearFinding("1", "check-1", target, by="alice"))
    assert outcome.done
    assert node.checks() == ["check-0"]
    for check in ("check-0", "no-such-check"):
        assert not (await clearer.carry_out(ClearFinding("2", check, "node"))).done
    assert node.checks() == ["check-0"]
    node.agent.stop()
    await running
