"""Background tasks that are cancelled, as the lease of a leader is lost."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from nodeguard.aggregator.actions.keyed_tasks import KeyedTasks


@pytest.mark.parametrize("seconds", [0.0, 0.01])
async def test_a_cancelled_task_that_waits_for_its_turn_leaves_no_warning(seconds: float) -> None:
    """seconds: until they are cancelled; 0 before their first step."""
    ended, tasks, limit = list[None](), KeyedTasks[str](lambda: ended.append(None)), asyncio.Semaphore(1)

    async def work() -> None:
        await asyncio.sleep(60.0)

    with warnings.catch_warnings(record=True, action="always") as found:
        for key in ("first", "waiting"):
            tasks.start(key, work(), limit)
        if seconds:
            await asyncio.sleep(seconds)
        tasks.cancel()
        await asyncio.sleep(0.01)
        gc.collect()
    assert [str(warning.message) for warning in found] == []
    assert len(ended) == 2
    assert not any(map(tasks.is_running, ("first", "waiting")))
