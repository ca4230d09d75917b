"""Letting go of GPUs for a while, so that they can be reset, or their driver changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.detached_gpus import DetachedGpus, detach, detached_targets, seconds_until_change
from nodeguard.judge.clear import ClearRequest
from nodeguard.model.target import normalize_target, target_kind
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.nvml import NvmlSource
from nodeguard.wire.instruction import ClearFinding, DetachGpus

# Seconds that a release lasts at most: whoever forgets it must not be left without a watch.
MAX_DETACH_SECONDS = 86_400.0

# Seconds between two looks at whether a round is over.
_POLL_SECONDS = 0.02


class GpuDetacher:
    """The GPUs of a node, through the one source that holds them open.

    source: None where the machine has none. let_go: ends what holds them; may take as long as a round.
    release: that was asked for before this agent began.
    """

    def __init__(
        self, agent: Agent, source: NvmlSource | None, let_go: Callable[[], None], release: DetachedGpus
    ) -> None:
        self._agent = agent
        self._source = source
        self._let_go = let_go
        self.detached = release
        self._over: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Leave alone what is released, and look again when less is."""
        now = self._agent.now()
        if self._over is not None:
            self._over.cancel()
        if self._source is None:
            return
        self._source.detached = detached_targets(self.detached, now)
        wait = seconds_until_change(self.detached, now)
        if wait is not None:
            self._over = asyncio.get_running_loop().call_later(wait / self._agent.speed, self._look)

    async def carry_out(self, wanted: DetachGpus) -> InstructionOutcome:
        """Let go for so long, 0 to take all back. It is answered once they are let go of."""
        if self._source is None:
            return InstructionOutcome(
                done=False, message="no NVIDIA driver is read here: there is nothing to let go of"
            )
        slots = tuple(normalize_target(slot if "/" in slot else f"gpu/{slot}") for slot in wanted.targets)
        if unknown := sorted(set(slots) - self._known()):
            known = ", ".join(sorted(self._known())) or "none"
            return InstructionOutcome(
                done=False, message=f"{unknown[0]} is no GPU that is read here; there is {known}"
            )
        if wanted.seconds > MAX_DETACH_SECONDS:
            return InstructionOutcome(done=False, message="a release lasts a day at most: ask again then")
        now = self._agent.now()
        self.detached = (
            detach(self.detached, slots, wanted.seconds, now) if wanted.seconds else DetachedGpus()
        )
        self.begin()
        if self._source.detached:
            # A round that began before may still take hold of them.
            while self._agent.is_reading(NvmlSource.name):
                await asyncio.sleep(_POLL_SECONDS)
            await asyncio.to_thread(self._let_go)
        self._look()
        return InstructionOutcome(done=True, message=", ".join(slots) or "all GPUs")

    def _known(self) -> set[str]:
        latest = self._agent.latest.values()
        return {
            one.target for seen in latest for one in seen.observations if target_kind(one.target) == "gpu"
        }

    def _look(self) -> None:
        self.begin()
        self._agent.read(NvmlSource.name, together=0.0)


# Seconds between two looks at whether everything was read: what is read later would come back.
_POLL_SECONDS = 0.1


class FindingClearer:
    """Clears what an agent's judgement holds."""

    def __init__(self, agent: Agent, judgement: Pipeline) -> None:
        self._agent = agent
        self._judgement = judgement

    async def carry_out(self, wanted: ClearFinding) -> InstructionOutcome:
        """Clear a finding, once every source was read. The next verdict is without it, at once."""
        while self._agent.verdict is None or any(self._agent.unread_sources()):
            await asyncio.sleep(_POLL_SECONDS)
        meant = ClearRequest(wanted.check, normalize_target(wanted.target), wanted.component, wanted.by)
        clearing = self._judgement.clear(meant, self._agent.now())
        self._agent.evaluate()
        return InstructionOutcome(done=bool(clearing.cleared), message=clearing.message)
