"""Findings that a person says are over."""

from __future__ import annotations

import asyncio

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import Answer
from nodeguard.agent.judgement import Judgement
from nodeguard.judge.clear import Wanted
from nodeguard.model.slot import normal
from nodeguard.wire.instruction import ClearCheck

# Seconds between two looks at whether everything was read: what is read later would come back.
_PAUSE = 0.1


class Clears:
    """Clears what an agent's judgement holds."""

    def __init__(self, agent: Agent, judgement: Judgement) -> None:
        self._agent = agent
        self._judgement = judgement

    async def carry_out(self, wanted: ClearCheck) -> Answer:
        """Clear a finding, once every source was read. The next verdict is without it, at once."""
        while self._agent.verdict is None or any(self._agent.unheard()):
            await asyncio.sleep(_PAUSE)
        meant = Wanted(wanted.check, normal(wanted.slot), wanted.part, wanted.by)
        clearing = self._judgement.clear(meant, self._agent.now())
        self._agent.judge()
        return Answer(done=bool(clearing.cleared), said=clearing.said)
