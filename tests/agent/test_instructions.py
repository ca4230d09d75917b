"""Detached GPUs, with the double of libnvidia-ml as the driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeguard.agent.agent import Agent
from nodeguard.agent.instructions import DetachedGpus, GpuDetacher
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import DataStatus
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machines import live
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.nvml import NvmlSource
from nodeguard.wire.instruction import DetachGpus
from nodeguard.worker.lane import WorkerLane, nvml_lane
from tests.agent.scene import workers
from tests.nvml_double import Build
from tests.waiting import until_async
from tests.worker import recordings

ONE, OTHER = "gpu/0000:01:00", "gpu/0000:02:00"


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


@pytest.fixture
def double(nvml_double: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [recordings.hopper(index, links=0) for index in range(2)]
    path = str(nvml_double({"system": recordings.SYSTEM, "devices": devices}).path)

    def lane(**more: Any) -> WorkerLane:
        return nvml_lane(path, **more)

    monkeypatch.setattr(live, "nvml_lane", lane)


@pytest.mark.usefixtures("double")
async def test_detaching_ends_the_worker_before_the_response(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        assert node.statuses() == {"node": "read", ONE: "read", OTHER: "read"}
        assert len(workers()) == 1
        answer = await node.gpus.carry_out(DetachGpus("1", 60.0))
        assert (answer.done, answer.message, workers()) == (True, "all GPUs", [])
        await until_async(lambda: node.data_status() is DataStatus.NOT_APPLICABLE)
        node.agent.read("nvml", together=0.0)
        await until_async(lambda: not node.agent.is_reading("nvml"))
        assert workers() == []
        assert (await node.gpus.carry_out(DetachGpus("2", 0.0))).done
        await until_async(lambda: node.data_status() is DataStatus.FRESH)
        assert len(workers()) == 1


@pytest.mark.usefixtures("double")
async def test_one_detached_gpu_and_the_others_are_read(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        [before] = workers()
        assert (await node.gpus.carry_out(DetachGpus("1", 60.0, ("02:00",)))).message == OTHER
        await until_async(lambda: node.statuses() == {"node": "read", ONE: "read", OTHER: "detached"})
        assert workers() != [before]
        assert (await node.gpus.carry_out(DetachGpus("2", 60.0, (ONE,)))).message == ONE
        await until_async(lambda: node.statuses() == {"node": "read", ONE: "detached", OTHER: "detached"})


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
        assert unknown.message == f"99:00 is not a GPU of this node; the GPUs are: {ONE}, {OTHER}"
        assert not (await node.gpus.carry_out(DetachGpus("1", 1e6))).done
        assert node.gpus.detached == DetachedGpus()
        none = GpuDetacher(node.agent, None, lambda: None, DetachedGpus())
        assert "there is nothing to detach" in (await none.carry_out(DetachGpus("1", 60.0))).message
