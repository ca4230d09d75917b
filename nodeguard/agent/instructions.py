"""Instructions of the aggregator, carried out by the agent: detach GPUs for a time, or clear a finding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import InstructionOutcome
from nodeguard.judge.clear import ClearRequest
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE, normalize_target, target_kind
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.nvml import NvmlSource
from nodeguard.wire.instruction import MAX_DETACH_SECONDS, ClearFinding, DetachGpus

# Polling interval in seconds, until a reading has ended.
_POLL_SECONDS = 0.02

# Polling interval in seconds, until every source was read.
_PAUSE = 0.1


class DetachedGpus(Struct, frozen=True):
    """GPUs that are detached in one boot. until: seconds since that boot by target, NODE for all GPUs."""

    boot_id: str = ""
    until: dict[str, float] = {}


def detach(detached: DetachedGpus, targets: Iterable[str], seconds: float, now: Instant) -> DetachedGpus:
    """Return the state after some more targets are detached, all GPUs if there are none."""
    present = {target: detached.until[target] for target in detached_targets(detached, now)}
    return DetachedGpus(now.boot_id, {**present, **dict.fromkeys(targets or (NODE,), now.mono + seconds)})


def detached_targets(detached: DetachedGpus, now: Instant) -> frozenset[str]:
    """Return the targets that are detached at a time, NODE for all GPUs."""
    if detached.boot_id != now.boot_id:
        return frozenset()
    return frozenset(target for target, until in detached.until.items() if now.mono < until)


def seconds_until_change(detached: DetachedGpus, now: Instant) -> float | None:
    """Return the seconds until fewer targets are detached, None if none is."""
    left = (detached.until[target] - now.mono for target in detached_targets(detached, now))
    return min(left, default=None)


class CloseDevices(Protocol):
    """A function that closes the GPU devices."""

    def __call__(self, *, ends_stalls: bool) -> None:
        """Close them. ends_stalls: whether the next reading calls stalled GPUs again."""


class GpuDetacher:
    """Detaches GPUs from the agent, so that an operator can reset them or change their driver.

    source: reads the GPUs; None without an NVIDIA driver. close_devices: closes /dev/nvidia* until the next
    reading; it may block for as long as a reading. detached: the GPUs that were detached before a restart.
    """

    def __init__(
        self, agent: Agent, source: NvmlSource | None, close_devices: CloseDevices, detached: DetachedGpus
    ) -> None:
        self._agent = agent
        self._source = source
        self._close_devices = close_devices
        self.detached = detached
        self._timer: asyncio.TimerHandle | None = None

    def apply(self) -> None:
        """Have the source skip the detached GPUs, and read it again when fewer are detached."""
        now = self._agent.now()
        if self._timer is not None:
            self._timer.cancel()
        if self._source is None:
            return
        self._source.detached = detached_targets(self.detached, now)
        wait = seconds_until_change(self.detached, now)
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait / self._agent.speed, self._read)

    async def carry_out(self, instruction: DetachGpus) -> InstructionOutcome:
        """Detach GPUs, or attach all of them for 0 seconds. Return once the devices are closed.

        GPUs with a stalled call are read again once all GPUs are attached, or if all are detached: an
        operator may have reset them. If only some are detached, another that does not answer stays unread.
        """
        if self._source is None:
            return InstructionOutcome(
                done=False, message="this agent reads no NVIDIA driver: there is nothing to detach"
            )
        by_name, gpus = self._source.targets_by_name(), self._gpus()
        targets = tuple(
            by_name.get(name) or normalize_target(name if "/" in name else f"gpu/{name}")
            for name in instruction.targets
        )
        for name, target in zip(instruction.targets, targets, strict=True):
            if target not in gpus:
                present = ", ".join(sorted(gpus)) or "none"
                message = f"{name} is not a GPU of this node; the GPUs are: {present}"
                return InstructionOutcome(done=False, message=message)
        if instruction.seconds > MAX_DETACH_SECONDS:
            return InstructionOutcome(
                done=False, message="GPUs are detached for a day at most: repeat the command then"
            )
        now = self._agent.now()
        is_attach = not instruction.seconds
        self.detached = (
            DetachedGpus() if is_attach else detach(self.detached, targets, instruction.seconds, now)
        )
        self.apply()
        # A reading that began before may still open them.
        while self._agent.is_reading(NvmlSource.name):
            await asyncio.sleep(_POLL_SECONDS)
        ends_stalls = is_attach or not targets
        await asyncio.to_thread(self._close_devices, ends_stalls=ends_stalls)
        self._read()
        return InstructionOutcome(done=True, message=", ".join(targets) or "all GPUs")

    def _gpus(self) -> set[str]:
        return {
            observation.target
            for reading in self._agent.latest.values()
            for observation in reading.observations
            if target_kind(observation.target) == "gpu"
        }

    def _read(self) -> None:
        self.apply()
        self._agent.read(NvmlSource.name, together=0.0)


class FindingClearer:
    """Clears findings in the pipeline of an agent.

    gpu_names: returns the targets of GPUs by their indexes and UUIDs, which an operator may write, too.
    """

    def __init__(self, agent: Agent, pipeline: Pipeline, gpu_names: Callable[[], Mapping[str, str]]) -> None:
        self._agent = agent
        self._pipeline = pipeline
        self._gpu_names = gpu_names

    async def carry_out(self, instruction: ClearFinding) -> InstructionOutcome:
        """Clear a finding. The next verdict follows at once, without the finding.

        It waits until every source was read: a later reading of an old event would raise the finding again.
        """
        while self._agent.verdict is None or any(self._agent.unread_sources()):
            await asyncio.sleep(_PAUSE)
        target = self._gpu_names().get(instruction.target) or normalize_target(instruction.target)
        request = ClearRequest(instruction.check, target, instruction.component, instruction.by)
        result = self._pipeline.clear(request, self._agent.now())
        self._agent.evaluate()
        return InstructionOutcome(done=bool(result.cleared), message=result.message)
