"""The agent with the double of libnvidia-ml as its driver: events, hangs, and lost GPUs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from nodeguard.agent import watched_node as following
from nodeguard.agent.agent import Agent
from nodeguard.agent.watched_node import watch_descriptors
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.observation import Observation
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.machine import Machine
from nodeguard.sources.machines import live
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.source import Source
from nodeguard.worker.lane import WorkerLane, nvml_lane
from nodeguard.worker.progress import Deadlines
from tests.agent.scene import NEVER, Scripted
from tests.fuse import Manner, Server
from tests.nvml_double import Build, Double
from tests.pipeline.test_pipeline import LOW, judgement
from tests.sources.fake_machine import FakeMachine
from tests.waiting import PATIENCE, until_async
from tests.worker import recordings

_XID = 8
_SLOT = "gpu/0000:02:00"


def _gpus(number: int, **second: Any) -> dict[str, Any]:
    """Return healthy GPUs; the second one has other results of some calls."""
    devices = [recordings.hopper(index, links=0) for index in range(number)]
    for device in devices:
        device["nvmlDeviceGetRemappedRows"] = [0, 0, 0, 0]
        device["nvmlDeviceGetFieldValues(230,0)"] = {"error": "NVML_ERROR_NOT_SUPPORTED"}
    devices[1:2] = [device | second for device in devices[1:2]]
    return {"system": recordings.SYSTEM, "devices": devices}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a machine with a driver and without a kernel log."""
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("5c8f1d2e\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    return tmp_path


@pytest.fixture
def deadlines() -> Deadlines:
    """Return deadlines that a slow machine does not exceed."""
    return Deadlines(call=PATIENCE, first=PATIENCE, grace=PATIENCE)


@pytest.fixture
def double(nvml_double: Build, deadlines: Deadlines, monkeypatch: pytest.MonkeyPatch) -> Double:
    double = nvml_double(_gpus(2))

    def lane(**more: Any) -> WorkerLane:
        return nvml_lane(str(double.path), deadlines=deadlines, **more)

    monkeypatch.setattr(live, "nvml_lane", lane)
    return double


@asynccontextmanager
async def _watching(root: Path, *sources: Source) -> AsyncIterator[Agent]:
    """Run an agent that watches its machine's descriptors, and yield it after each source was read."""
    catalogue, signals = load_catalogue()
    with LiveMachine(str(root)) as machine:
        judgement = Pipeline(catalogue, signals, PlatformHints())
        agent = Agent(machine, sources, judgement, 0.0)
        watch_descriptors(machine, agent)
        running = asyncio.create_task(agent.run())
        names = {source.name for source in sources}
        await until_async(lambda: judgement.state.derived.latest.keys() >= names)
        try:
            yield agent
        finally:
            agent.stop()
            await running
            with suppress(ValueError):
                asyncio.get_running_loop().remove_reader(machine.events_descriptor())


def _findings(agent: Agent) -> dict[str, str]:
    assert agent.verdict is not None
    return {finding.check: finding.target for finding in agent.verdict.findings}


async def test_an_event_is_a_finding_at_once(root: Path, double: Double) -> None:
    nvml = NvmlSource()
    nvml.interval = NEVER
    async with _watching(root, nvml, KmsgSource(load_catalogue()[0].patterns)) as agent:
        assert "gpu-xid-fatal" not in _findings(agent)
        double.tell(1, _XID, 62)
        await until_async(lambda: "gpu-xid-fatal" in _findings(agent))
    assert _findings(agent)["gpu-xid-fatal"] == _SLOT


async def test_an_event_storm_does_not_cause_continuous_rounds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_EVENT_REST", NEVER)
    nvml = Scripted("nvml", interval=NEVER)
    async with _watching(root, nvml) as agent:
        machine: Any = agent._machine
        for _ in range(100):
            os.write(machine._events.writable(), b"[0,8,13]\n")
            await asyncio.sleep(0)
        await until_async(lambda: nvml.rounds == 2)
        await until_async(lambda: not agent.is_reading("nvml"))
        os.write(machine._events.writable(), b"[0,8,13]\n")
        for _ in range(20):
            await asyncio.sleep(0)
        assert (nvml.rounds, len(machine.nvml_events())) == (2, 101)


@pytest.mark.slow
@pytest.mark.parametrize("deadlines", [Deadlines(call=2.0, first=PATIENCE, grace=1.0)])
async def test_a_hung_worker_is_a_finding_and_other_sources_continue(
    root: Path, double: Double, fuse_mount: Callable[[Manner], Server]
) -> None:
    server = fuse_mount("swallowing")
    other = Scripted("memory", interval=0.05)
    nvml = NvmlSource()
    nvml.interval = 0.05
    async with _watching(root, nvml, other) as agent:
        machine: Any = agent._machine
        double.answer(_gpus(2, nvmlDeviceGetEccMode={"error": server.path}))
        await until_async(lambda: "driver-unresponsive" in _findings(agent))
        worker, rounds = machine._gpus._worker, other.rounds
        assert worker.status() is None, "it is stuck"
        evaluations = agent.evaluations
        await until_async(lambda: other.rounds > rounds + 5 and agent.evaluations > evaluations + 5)
        assert "driver-unresponsive" in _findings(agent), "it is latched"
        assert machine._gpus._worker is worker, "no second one is started behind it"
        assert machine.hangs().nvml is not None
        assert machine.hangs().nvml.call == "nvmlDeviceGetEccMode"
    server.release()
    os.waitpid(worker._pid, 0)


async def test_a_gpu_that_vanishes_and_returns(root: Path, double: Double) -> None:
    nvml = NvmlSource()
    nvml.interval = 0.05

    def seen(agent: Agent) -> set[str]:
        reading = agent._pipeline.state.derived.latest["nvml"]
        return {
            observation.target
            for observation in reading.observations
            if observation.target.startswith("gpu/")
        }

    async with _watching(root, nvml, KmsgSource(load_catalogue()[0].patterns)) as agent:
        assert _SLOT in seen(agent)
        double.answer(_gpus(1))
        await until_async(lambda: _SLOT not in seen(agent))
        double.answer(_gpus(2))
        await until_async(lambda: _SLOT in seen(agent))
        double.tell(1, _XID, 62)
        await until_async(lambda: "gpu-xid-fatal" in _findings(agent))
        assert _findings(agent)["gpu-xid-fatal"] == _SLOT


async def test_an_unreadable_log_is_not_read_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_FAILED_REST", NEVER)

    def failing(_: Machine) -> Iterator[Observation]:
        raise PermissionError(1, "Operation not permitted")

    reader, writer = os.pipe()
    os.write(writer, b"a line")
    log, other = Scripted("kmsg", failing, interval=NEVER), Scripted("memory", interval=0.01)
    agent = Agent(cast("Any", FakeMachine()), [log, other], judgement(LOW), 0.0)
    following._read_when_readable(agent, "kmsg", reader, 0.002)
    running = asyncio.create_task(agent.run())
    await until_async(lambda: log.rounds >= 1)
    so_far = other.rounds
    await until_async(lambda: other.rounds > so_far + 20)
    agent.stop()
    await running
    asyncio.get_running_loop().remove_reader(reader)
    assert log.rounds <= 2
    os.close(reader)
    os.close(writer)


async def test_the_agent_rests_after_a_long_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_FLOOD_REST", NEVER)
    reader, writer = os.pipe()
    os.write(writer, b"a line")
    log = Scripted("kmsg", interval=NEVER)
    agent = Agent(cast("Any", FakeMachine()), [log], judgement(LOW), 0.0)
    agent.evaluation_seconds = NEVER
    following._read_when_readable(agent, "kmsg", reader, 0.0)
    await until_async(lambda: log.rounds == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert log.rounds == 1
    asyncio.get_running_loop().remove_reader(reader)
    os.close(reader)
    os.close(writer)
