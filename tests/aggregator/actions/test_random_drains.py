"""Random histories of drains, see random_drain_history, which check themselves in each step.

`NODEGUARD_DRAIN_HISTORIES=10000` sets the number of histories.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from nodeguard.model.action import ActionState
from tests.aggregator.actions.random_drain_history import STEPS, History, check_end

pytestmark = pytest.mark.slow

HISTORIES = int(os.environ.get("NODEGUARD_DRAIN_HISTORIES", "120"))


@pytest.mark.parametrize("part", range(4))
def test_random_histories(part: int) -> None:
    begun = again = failed = by_hand = noticed = 0
    for seed in range(part, HISTORIES, 4):
        history = History(seed)

        async def play(history: History = history) -> None:
            for _ in range(STEPS):
                await history.step()
            await history.finish()

        try:
            asyncio.run(play())
            check_end(history)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        ends = [
            (drain.action.uid, drain.action.state)
            for drain in history.drains.values()
            if not drain.action.state.is_withdrawn
        ]
        begun += bool(ends)
        noticed += bool(history.noticed)
        by_hand += any(
            drain.action.requested_by and drain.action.state == ActionState.SUCCEEDED
            for drain in history.drains.values()
        )
        again += len({node for node, _ in ends}) < len(ends)
        failed += any(state == ActionState.FAILED for _, state in ends)
    assert begun > HISTORIES // 10, "the histories drain nothing"
    assert noticed, "the histories drain nothing after a notice"
    assert by_hand > HISTORIES // 100, "the histories drain nothing by hand"
    assert again > HISTORIES // 100, "the histories drain no second quarantine"
    assert failed > HISTORIES // 100 or part % 2 == 0, "the histories fail no drain"
