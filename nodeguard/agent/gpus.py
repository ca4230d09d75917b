"""Letting go of GPUs for a while, so that they can be reset, or their driver changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import Answer
from nodeguard.agent.release import Release, changes, left, released
from nodeguard.model.slot import kind, normal
from nodeguard.sources.nvml import Nvml
from nodeguard.wire.instruction import ReleaseGpus

# Seconds that a release lasts at most: whoever forgets it must not be left without a watch.
LONGEST = 86_400.0

# Seconds between two looks at whether a round is over.
_PAUSE = 0.02


class Gpus:
    """The GPUs of a node, through the one source that holds them open.

    source: None where the machine has none. let_go: ends what holds them; may take as long as a round.
    release: that was asked for before this agent began.
    """

    def __init__(
        self, agent: Agent, source: Nvml | None, let_go: Callable[[], None], release: Release
    ) -> None:
        self._agent = agent
        self._source = source
        self._let_go = let_go
        self.release = release
        self._over: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Leave alone what is released, and look again when less is."""
        now = self._agent.now()
        if self._over is not None:
            self._over.cancel()
        if self._source is None:
            return
        self._source.left = left(self.release, now)
        wait = changes(self.release, now)
        if wait is not None:
            self._over = asyncio.get_running_loop().call_later(wait / self._agent.speed, self._look)

    async def carry_out(self, wanted: ReleaseGpus) -> Answer:
        """Let go for so long, 0 to take all back. It is answered once they are let go of."""
        if self._source is None:
            return Answer(done=False, said="no NVIDIA driver is read here: there is nothing to let go of")
        slots = tuple(normal(slot if "/" in slot else f"gpu/{slot}") for slot in wanted.slots)
        if unknown := sorted(set(slots) - self._known()):
            known = ", ".join(sorted(self._known())) or "none"
            return Answer(done=False, said=f"{unknown[0]} is no GPU that is read here; there is {known}")
        if wanted.seconds > LONGEST:
            return Answer(done=False, said="a release lasts a day at most: ask again then")
        now = self._agent.now()
        self.release = released(self.release, slots, wanted.seconds, now) if wanted.seconds else Release()
        self.begin()
        if self._source.left:
            # A round that began before may still take hold of them.
            while self._agent.is_reading(Nvml.name):
                await asyncio.sleep(_PAUSE)
            await asyncio.to_thread(self._let_go)
        self._look()
        return Answer(done=True, said=", ".join(slots) or "all GPUs")

    def _known(self) -> set[str]:
        latest = self._agent.latest.values()
        return {one.slot for seen in latest for one in seen.observations if kind(one.slot) == "gpu"}

    def _look(self) -> None:
        self.begin()
        self._agent.read(Nvml.name, together=0.0)
