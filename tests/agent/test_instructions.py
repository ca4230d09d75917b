"""GPUs of a machine whose driver is the double of libnvidia-ml, let go of and taken back."""

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

    def __init__(self, root: Path, release: DetachedGpus) -> None:
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("boot\n")
        (root / "dev").mkdir()
        (root / "dev/nvidiactl").touch()
        self.machine = LiveMachine(str(root))
        self.source = NvmlSource()
        self.agent = Agent(self.machine, [self.source], Pipeline(*load_catalogue(), PlatformHints()), 0.0)
        self.gpus = GpuDetacher(self.agent, self.source, self.machine.detach_gpus, release)

    def knowledge(self) -> DataStatus | None:
        return self.agent.verdict.data_status if self.agent.verdict else None

    def statuses(self) -> dict[str, str]:
        return {
            one.target: one.status
            for one in self.agent.latest["nvml"].observations
            if "/nvlink/" not in one.target
        }


@asynccontextmanager
async def watching(root: Path, release: DetachedGpus = DetachedGpus()) -> AsyncIterator[Node]:  # noqa: B008 - frozen
    node = Node(root, release)
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
async def test_the_process_that_holds_the_gpus_is_gone_when_the_answer_comes(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        assert node.statuses() == {"node": "read", ONE: "read", OTHER: "read"}
        assert len(workers()) == 1
        answer = await node.gpus.carry_out(DetachGpus("1", 60.0))
        assert (answer.done, answer.message, workers()) == (True, "all GPUs", [])
        await until_async(lambda: node.knowledge() is DataStatus.NOT_APPLICABLE)
        node.agent.read("nvml", together=0.0)
        await until_async(lambda: not node.agent.is_reading("nvml"))
        assert workers() == []
        assert (await node.gpus.carry_out(DetachGpus("2", 0.0))).done
        await until_async(lambda: node.knowledge() is DataStatus.FRESH)
        assert len(workers()) == 1


@pytest.mark.usefixtures("double")
async def test_one_gpu_is_left_alone_and_the_other_read(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        [before] = workers()
        assert (await node.gpus.carry_out(DetachGpus("1", 60.0, ("02:00",)))).message == OTHER
        await until_async(lambda: node.statuses() == {"node": "read", ONE: "read", OTHER: "detached"})
        assert workers() != [before]
        assert (await node.gpus.carry_out(DetachGpus("2", 60.0, (ONE,)))).message == ONE
        await until_async(lambda: node.statuses() == {"node": "read", ONE: "detached", OTHER: "detached"})


@pytest.mark.usefixtures("double")
async def test_a_release_ends_by_itself_and_outlives_a_restart(tmp_path: Path) -> None:
    hour = LiveMachine().now().mono + 3600.0
    async with watching(tmp_path, DetachedGpus("boot", {NODE: hour})) as node:
        assert (node.knowledge(), workers()) == (DataStatus.NOT_APPLICABLE, [])
        soon = node.agent.now().mono + 0.2
        node.gpus.detached = DetachedGpus("boot", {NODE: soon})
        node.gpus.apply()
        await until_async(lambda: node.knowledge() is DataStatus.FRESH)
        assert node.agent.now().mono >= soon


@pytest.mark.usefixtures("double")
async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with watching(tmp_path) as node:
        unknown = await node.gpus.carry_out(DetachGpus("1", 60.0, ("99:00",)))
        assert unknown.message == f"99:00 is not a GPU of this node; the GPUs are: {ONE}, {OTHER}"
        assert not (await node.gpus.carry_out(DetachGpus("1", 1e6))).done
        assert node.gpus.detached == DetachedGpus()
        none = GpuDetacher(node.agent, None, lambda: None, DetachedGpus())
        assert "there is nothing to detach" in (await none.carry_out(DetachGpus("1", 60.0))).message
