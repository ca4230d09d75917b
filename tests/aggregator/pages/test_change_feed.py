from __future__ import annotations

import asyncio

from msgspec.structs import replace

from nodeguard.aggregator.pages.change_feed import ChangeFeed, fingerprint
from nodeguard.model.incident import OperatorDecision
from tests.aggregator.pages.scenes import plain_fleet, service_state
from tests.fleet.scene import Fleet, finding
from tests.waiting import PATIENCE, until_async

FAST = 0.001
NEVER = 1e6


def number(fleet: Fleet) -> int:
    return fingerprint(fleet.planner, service_state(fleet), fleet.now)


class Counter:
    """A state that counts how often it is read."""

    def __init__(self) -> None:
        self.value = self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return self.value


async def test_a_change_wakes_all_subscribers() -> None:
    state = Counter()
    feed = ChangeFeed(state, FAST, NEVER)
    async with asyncio.timeout(PATIENCE):
        with feed.subscribe() as first, feed.subscribe() as second:
            await until_async(lambda: state.reads > 3)
            assert not first.is_set()
            state.value += 1
            await first.wait()
            await second.wait()


async def test_ages_are_refreshed_without_a_change() -> None:
    state = Counter()
    feed = ChangeFeed(state, FAST, 3 * FAST)
    async with asyncio.timeout(PATIENCE):
        with feed.subscribe() as changed:
            await changed.wait()
    assert (state.value, state.reads > 1) == (Counter().value, True)


async def test_without_subscribers_the_state_is_not_read() -> None:
    state = Counter()
    feed = ChangeFeed(state, FAST, NEVER)
    assert (len(feed), state.reads) == (0, 0)
    with feed.subscribe():
        await until_async(lambda: state.reads > 3)
    assert len(feed) == 0
    reads = state.reads
    for _ in range(10):
        await asyncio.sleep(FAST)
    assert state.reads == reads


async def test_the_end_wakes_the_subscribers() -> None:
    feed = ChangeFeed(Counter(), NEVER, NEVER)
    with feed.subscribe() as changed:
        feed.close()
        assert changed.is_set()
        assert feed.has_ended()


def test_the_fingerprint_changes_with_the_fleet_and_not_with_the_time() -> None:
    fleet = plain_fleet(40)
    before = number(fleet)
    fleet.after(10.0)
    fleet.carry_out()
    assert number(fleet) == before
    fleet.report(3, finding())
    fleet.carry_out()
    faulty = number(fleet)
    assert faulty != before
    [name] = fleet.planner.tracker.recorded.by_uid["uid-3"]
    acknowledged = replace(
        service_state(fleet), decisions={name: OperatorDecision(name, acknowledged="alice")}
    )
    assert fingerprint(fleet.planner, acknowledged, fleet.now) != faulty
