"""A loop that plans only when it is due makes the same plans at the same times as one that plans in each turn."""

from __future__ import annotations

import pytest

from nodeguard.fleet.plan_loop import NO_CHANGE
from tests.fleet.cluster_planner import ClusterPlan
from tests.worlds.history import History, Step, random_history
from tests.worlds.world import World

# With seven of the ten parts of next_change.py removed, the first 88 of 200 worlds notice what any of them does.
WORLDS, PARTS = 100, 2


class LoggingWorld(World):
    """A world with turns of a second, also where nothing changes, which logs each change of plan and decisions.
    made: number of plans; turned: of turns.
    """

    turns = (*(1.0,) * 40, 5.0, 10.0, 15.0, 60.0, 61.0, 400.0, 1_800.0)
    skips = False

    def __init__(self, history: History) -> None:
        self.log: list[tuple[float, object]] = []
        self._state: object = None
        self.made = self.turned = 0
        super().__init__(history)

    def plan(self) -> ClusterPlan:
        self.turned += 1
        plan = self.planner.with_writes(NO_CHANGE)
        if not self.skips or self.loop.is_due(self.now()):
            self.made += 1
            plan = super().plan()
        if plan != NO_CHANGE:
            self.log.append((self.mono, plan))
        state = self._decided()
        if state != self._state:
            self.log.append((self.mono, state))
            self._state = state
        return plan

    def _decided(self) -> object:
        """Return all that the plan decides and that others read."""
        planner, tracker = self.planner, self.planner.tracker
        waits = {uid: dict(of_node) for uid, of_node in planner.releases._waits.items() if of_node}
        proofs = {uid: dict(of_node) for uid, of_node in planner.releases.proofs.items() if of_node}
        incidents = {uid: dict(of_node) for uid, of_node in tracker.recorded.by_uid.items()}
        pending = {uid: dict(of_node) for uid, of_node in tracker.pending.items()}
        return (
            planner.tracker.decisions,
            planner.domain_marks.decisions,
            waits,
            proofs,
            incidents,
            pending,
            dict(tracker.recorded.left_out),
        )


class SkippingWorld(LoggingWorld):
    """The same with plans only when they are due."""

    skips = True


def compare(history: History) -> SkippingWorld:
    """Run a history in both worlds, which must do the same at the same times."""
    every_turn, when_due = LoggingWorld(history), SkippingWorld(history)
    for step in history.steps:
        every_turn.apply(step)
        when_due.apply(step)
        assert len(every_turn.log) == len(when_due.log), f"{step}\n{_difference(every_turn, when_due)}"
        assert every_turn.log == when_due.log, f"{step}\n{_difference(every_turn, when_due)}"
    assert every_turn.made == every_turn.turned == when_due.turned
    return when_due


def _difference(every_turn: LoggingWorld, when_due: LoggingWorld) -> str:
    for number, (expected, actual) in enumerate(zip(every_turn.log, when_due.log, strict=False)):
        if expected != actual:
            return f"{number}: at {expected[0]}: {expected[1]}\nbut at {actual[0]}: {actual[1]}"
    more = (*every_turn.log, *when_due.log)[min(len(every_turn.log), len(when_due.log)) :]
    return f"one more: {more[:1]}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_skipped_plans_change_nothing_in_any_world(part: int) -> None:
    made = turned = 0
    for seed in range(part * WORLDS // PARTS, (part + 1) * WORLDS // PARTS):
        world = compare(random_history(seed))
        made, turned = made + world.made, turned + world.turned
    assert made < 0.7 * turned


@pytest.mark.parametrize("seed", range(3))
def test_skipped_plans_change_nothing(seed: int) -> None:
    compare(random_history(seed))


def test_a_fleet_at_rest_is_not_planned() -> None:
    world = compare(History(16, 8, 900.0, (), (), (Step("wait", seconds=3_000.0),)))
    before = world.made
    world.apply(Step("wait", seconds=3_000.0))
    assert world.made == before
