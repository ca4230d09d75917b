"""Which replica leads: the rules by themselves, and two or three replicas with the real lease in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.aggregator.backends.lease_keeper import LeaseKeeper
from nodeguard.aggregator.leadership import (
    RELEASE_AFTER,
    RESERVED,
    TERM,
    Candidacy,
    has_enough_reports,
    next_candidacy,
)
from nodeguard.fleet.state.liveness import StaleAgents
from nodeguard.kube.lease import Lease
from nodeguard.kube.lease_record import LEASE_SECONDS
from tests.aggregator.lease_server import LeaseServer, ReplicaApi
from tests.aggregator.virtual_time import run_virtually


@pytest.mark.parametrize(
    ("stale", "frozen", "enough"),
    [
        (0, "", True),
        (39, "39 of 400 agents are stale", False),
        (200, "", True),  # a domain explains them
        (201, "", False),  # more likely this replica is cut off
        (400, "", False),
    ],
)
def test_a_frozen_replica_and_one_without_most_reports_have_too_few(
    stale: int, frozen: str, enough: bool
) -> None:
    names = frozenset(str(number) for number in range(stale))
    assert has_enough_reports(StaleAgents(names, 400, 400, frozen)) == enough


def test_a_fleet_without_nodes_has_enough_reports() -> None:
    assert has_enough_reports(StaleAgents())


def turn(
    before: Candidacy, now: float, *, reports: bool, leads: bool, vacant_since: float | None = None
) -> Candidacy:
    return next_candidacy(
        before, has_inputs=True, has_reports=reports, is_leader=leads, vacant_since=vacant_since, now=now
    )


def test_a_leader_without_reports_releases_the_lease_and_abstains() -> None:
    state = turn(Candidacy(), 0.0, reports=True, leads=True)
    for now in range(1, 61):
        state = turn(state, float(now), reports=False, leads=True)
        assert state.wanted
    state = turn(state, 61.0, reports=False, leads=True)
    assert not state.wanted
    assert not turn(state, 61.0 + RESERVED - 0.1, reports=True, leads=False, vacant_since=61.0).wanted
    assert turn(state, 61.0 + RESERVED, reports=True, leads=False, vacant_since=61.0).wanted


def test_a_short_lack_of_reports_costs_no_lease() -> None:
    state = turn(Candidacy(), 0.0, reports=True, leads=True)
    for now in range(1, 1000):
        state = turn(state, float(now), reports=now % 59 == 0, leads=True)
        assert state.wanted


def test_a_standby_without_reports_takes_only_a_lease_without_a_holder_for_long() -> None:
    state = Candidacy()
    assert not turn(state, 100.0, reports=False, leads=False).wanted
    assert not turn(state, 100.0 + RESERVED - 0.1, reports=False, leads=False, vacant_since=100.0).wanted
    assert turn(state, 100.0 + RESERVED, reports=False, leads=False, vacant_since=100.0).wanted
    assert turn(state, 100.0, reports=True, leads=False, vacant_since=100.0).wanted


def test_a_lease_taken_without_reports_is_kept_for_a_term() -> None:
    state = turn(Candidacy(), 0.0, reports=False, leads=False, vacant_since=-100.0)
    state = turn(state, 1.0, reports=False, leads=True)
    for now in range(2, int(TERM) + 1):
        state = turn(state, float(now), reports=False, leads=True)
        assert state.wanted
    assert not turn(state, 1.0 + TERM, reports=False, leads=True).wanted


def test_a_replica_that_has_not_read_the_cluster_takes_no_lease() -> None:
    state = next_candidacy(
        Candidacy(), has_inputs=False, has_reports=True, is_leader=False, vacant_since=0.0, now=1e6
    )
    assert not state.wanted


STEPS = st.lists(
    st.tuples(
        st.floats(0.01, 30.0), st.booleans(), st.booleans(), st.one_of(st.none(), st.floats(0.0, 100.0))
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_a_release_follows_a_lack_of_reports_and_is_followed_by_abstention(
    steps: list[tuple[float, bool, bool, float | None]],
) -> None:
    state, now, lacks_reports_since, released_at = Candidacy(), 0.0, None, -inf
    for seconds, reports, leads, vacant in steps:
        now += seconds
        lacks_reports_since = None if reports else now if lacks_reports_since is None else lacks_reports_since
        following = turn(
            state, now, reports=reports, leads=leads, vacant_since=None if vacant is None else now - vacant
        )
        if leads and not following.wanted:
            assert lacks_reports_since is not None
            assert now - lacks_reports_since >= RELEASE_AFTER
            released_at = now
        if not leads and following.wanted:
            assert now - released_at >= RESERVED
            assert reports or (vacant is not None and vacant >= RESERVED)
        state = following


class Replica:
    """A replica: its candidate, and what it receives. reports: whether it has enough, by real time."""

    def __init__(self, name: str, api: ReplicaApi, offset: float, reports: Callable[[float], bool]) -> None:
        self.name, self.api, self.reports, self._offset = name, api, reports, offset
        self.lease = Lease(api, "default", "nodeguard", name, clock=self.clock)
        self.keeper = LeaseKeeper(self.lease)
        self.candidacy = Candidacy()
        self.leads = self.is_running = False

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self._offset

    @property
    def holds(self) -> bool:
        """Whether it may write now."""
        return self.leads and self.lease.is_held(self.clock())

    async def run(self, chance: random.Random) -> None:
        """Take turns, as the plan loop does."""
        while True:
            now = self.clock()
            self.candidacy = next_candidacy(
                self.candidacy,
                has_inputs=True,
                has_reports=self.reports(now - self._offset),
                is_leader=self.leads,
                vacant_since=self.lease.vacant_since,
                now=now,
            )
            if not self.candidacy.wanted:
                self.leads = False  # the writers end first
            self.leads = await self.keeper.renew(now, wanted=self.candidacy.wanted)
            await asyncio.sleep(chance.uniform(0.05, 1.0))


class World:
    """Replicas on one API server. leaders: who could write at each sample, every tenth of a second."""

    def __init__(self, seed: int, reports: list[Callable[[float], bool]]) -> None:
        self.chance = random.Random(seed)
        self.server = LeaseServer()
        self.latencies = [0.02] * len(reports)
        self.replicas = [
            Replica(f"replica-{number}", self._api(number), self.chance.uniform(-1e6, 1e6), enough)
            for number, enough in enumerate(reports)
        ]
        self.leaders: list[str] = []

    def _api(self, number: int) -> ReplicaApi:
        return ReplicaApi(self.server, lambda: self.latencies[number] * self.chance.uniform(0.5, 1.0))

    async def _live(self, seconds: float, change: Callable[[float], None]) -> None:
        tasks = [asyncio.create_task(replica.run(self.chance)) for replica in self.replicas]
        loop = asyncio.get_running_loop()
        while loop.time() < seconds:
            change(loop.time())
            writers = [replica.name for replica in self.replicas if replica.holds]
            assert len(writers) < 2, f"{writers} may write at {loop.time():.1f} s"
            self.leaders += writers or [""]
            await asyncio.sleep(0.1)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in self.replicas:
            await replica.keeper.stop()

    def live(self, seconds: float, change: Callable[[float], None] = lambda _: None) -> None:
        """Let the time pass. change: is called with the time, often."""
        run_virtually(self._live(seconds, change))

    def leader(self, at: float) -> str:
        return self.leaders[int(at * 10)]

    def gaps(self) -> list[float]:
        """Return the durations without a writer after the first one, in seconds."""
        text = "".join("x" if name else "." for name in self.leaders).lstrip(".")
        return [len(gap) / 10 for gap in text.split("x") if gap]

    def changes(self) -> int:
        """Return how often another replica, or the same one again, became the leader."""
        return sum(1 for _, holder in self.server.holders if holder) - 1


def always(value: bool) -> Callable[[float], bool]:
    return lambda _: value


@pytest.mark.parametrize("seed", range(3))
def test_the_replica_with_reports_becomes_the_leader(seed: int) -> None:
    world = World(seed, [lambda now: now < 100.0, always(True), always(False)])
    world.replicas[1].reports = lambda now: now > 20.0
    world.live(400.0)
    assert world.leader(15.0) == "replica-0"
    assert set(world.leaders[1700:]) == {"replica-1"}
    assert world.changes() == 1
    assert max(world.gaps()) < 3.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_if_no_replica_has_reports_one_of_them_leads_and_changes_are_rare(seed: int) -> None:
    world = World(seed, [always(False), always(False)])
    world.live(2 * 3600.0)
    shares = world.leaders.count("") / len(world.leaders)
    print(f"no leader for {shares:.1%} of the time, {world.changes()} changes in 2 h")
    assert world.changes() <= 2 * 3600.0 / TERM
    assert shares < 1.1 * RESERVED / TERM
    assert world.leader(RESERVED + 10.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_gets_reports_leads_after_the_term_of_one_without(seed: int) -> None:
    world = World(seed, [always(False), lambda now: now > 200.0])
    world.live(1000.0)
    first = world.leader(150.0)
    assert first
    assert world.leader(RESERVED + TERM + 20.0) == "replica-1"


@pytest.mark.parametrize("latency", [1.8, 2.5, 3.0, 4.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_slow_api_server_costs_no_lease(seed: int, latency: float) -> None:
    world = World(seed, [always(True), always(True)])

    def slow(now: float) -> None:
        world.latencies = [latency if 30.0 < now < 90.0 else 0.02] * 2

    world.live(120.0, slow)
    assert world.changes() == 0
    assert len(set(world.leaders[50:])) == 1


def test_one_response_just_before_the_end_of_the_hold_costs_no_lease() -> None:
    world = World(1, [always(True), always(True)])

    def slow(now: float) -> None:
        world.latencies = [6.5 if 30.0 < now < 33.0 else 0.02] * 2

    world.live(60.0, slow)
    assert len(set(world.leaders[50:])) == 1


def test_a_dead_connection_costs_no_lease() -> None:
    world = World(1, [always(True), always(True)])
    calls = 0

    def latency() -> float:
        nonlocal calls
        calls += 1
        return inf if calls in {40, 41, 80, 81} else 0.02

    world.replicas[0].api.latency = world.replicas[1].api.latency = latency
    world.live(120.0)
    assert len(set(world.leaders[50:])) == 1


def test_a_dead_connection_is_no_problem_while_another_one_answers() -> None:
    world = World(1, [always(True)])
    latencies = iter((0.02,) * 40 + (inf,))
    world.replicas[0].api.latency = lambda: next(latencies, 0.02)
    waits, problems = list[int](), list[object]()

    def look(_: float) -> None:
        keeper = world.replicas[0].keeper
        waits.append(len(keeper._attempts))
        problems.append(keeper.problem(world.replicas[0].clock()))

    world.live(120.0, look)
    assert waits.count(1) > 80  # the dead one
    assert set(problems) == {None}


@pytest.mark.parametrize("seed", range(3))
def test_the_other_replica_leads_after_the_leader_is_cut_from_the_api_server(seed: int) -> None:
    world = World(seed, [always(True), always(True)])
    cut_off: list[Replica] = []
    problems: list[float] = []

    def cut(now: float) -> None:
        if now >= 60.0 and not cut_off:
            cut_off.append(next(replica for replica in world.replicas if replica.holds))
            cut_off[0].api.latency = lambda: inf
        for replica in cut_off:
            problem = replica.keeper.problem(replica.clock())
            problems.extend([] if problem is None else [replica.clock() - problem.since])

    world.live(120.0, cut)
    # Shown soon, and from then on with its age.
    assert problems[0] < 6.0
    assert len(problems) > 480
    assert 55.0 < problems[-1] < 61.0
    assert world.changes() == 1
    assert world.leader(60.0) != world.leader(60.0 + LEASE_SECONDS + 5.0) != ""


@pytest.mark.parametrize("seed", range(10))
def test_at_most_one_of_three_replicas_may_write_in_any_world(seed: int) -> None:
    """Reports, latencies, cuts and refusals change at random; `live` checks that there is one writer. Then one
    replica has reports, and the API server is well.
    """
    chance, calm = random.Random(1000 + seed), 1200.0
    has_reports = [chance.random() < 0.5 for _ in range(3)]

    def enough(number: int) -> Callable[[float], bool]:
        return lambda _: has_reports[number]

    world = World(seed, [enough(number) for number in range(3)])
    next_change = 0.0

    def disturb(now: float) -> None:
        nonlocal next_change
        if now >= calm:
            has_reports[:] = [False, True, False]
            world.latencies = [0.02] * 3
            for replica in world.replicas:
                replica.api.refuses = False
        elif now >= next_change:
            next_change = now + chance.expovariate(1 / 20.0)
            number = chance.randrange(3)
            has_reports[number] = chance.random() < 0.6
            world.latencies[number] = chance.choice([0.02, 0.02, 0.5, 2.0, 4.0, 8.0, 12.0, inf])
            world.replicas[number].api.refuses = chance.random() < 0.1

    end = calm + TERM + RELEASE_AFTER + 2 * LEASE_SECONDS
    world.live(end + 60.0, disturb)
    assert set(world.leaders[int(end * 10) :]) == {"replica-1"}
