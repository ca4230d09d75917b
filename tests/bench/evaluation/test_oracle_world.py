from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from bench.evaluation.check_plants import FALSE_CHECKS
from bench.evaluation.draw import draw_world, world_of
from bench.evaluation.oracle import DECIDED, NO_CAUSE
from bench.evaluation.oracle_world import WorldOracle
from bench.evaluation.world import NodeFault

SIZE_CLASS, SEED = 64, 3


@cache
def oracle(kind: str) -> WorldOracle:
    return WorldOracle(draw_world(kind, SIZE_CLASS, SEED))


@pytest.mark.parametrize(
    "kind",
    ["leaf dead", "two leaves of a pod", "power feed", "NVLink domain", "observer partition", "version"],
)
def test_a_clear_cause_is_decided(kind: str) -> None:
    assert oracle(kind).decides(0, 1800.0)


@pytest.mark.parametrize("kind", ["leaf dead", "version"])
def test_no_cause_is_decided_before_it_shows(kind: str) -> None:
    assert not oracle(kind).decides(0, 5.0)


@pytest.mark.parametrize("kind", ["nothing", "maintenance and restart"])
def test_a_fleet_without_a_cause(kind: str) -> None:
    world = draw_world(kind, SIZE_CLASS, SEED)
    assert WorldOracle(world).posterior(world.background.until).of(NO_CAUSE) >= DECIDED


def test_the_oracle_does_not_know_which_check_has_false_alarms() -> None:
    world = draw_world("false alarms", SIZE_CLASS, SEED)
    explanations = WorldOracle(world)._explanations(world.background.until, frozenset())
    own = {item.check: item.prior for item in explanations if item.name == "false alarms"}
    assert own.keys() == set(FALSE_CHECKS)
    assert len(set(own.values())) == 1


@pytest.mark.parametrize(("firing", "is_decided"), [(3, False), (12, True)])
def test_few_nodes_with_a_false_alarm_may_have_broken_together(firing: int, is_decided: bool) -> None:
    world = draw_world("false alarms", 256, 2)
    background, [cause] = world.background, world.plant.causes
    shown = replace(cause, share=firing / background.fleet.size)
    plant = replace(world.plant, faults=world.plant.faults[:firing], causes=(shown,))
    assert len(plant.faults) == firing
    within = background.until - background.before
    assert WorldOracle(world_of(background, plant)).decides(0, within) is is_decided


def test_causes_that_begin_one_after_another_are_decided_one_by_one() -> None:
    targets = oracle("switch firmware").targets
    assert [len(target.causes) for target in targets] == [1] * len(targets)
    assert all(target.others for target in targets)


def test_the_oracle_gives_the_same_answer_in_any_order() -> None:
    world = draw_world("leaf partial", SIZE_CLASS, SEED)
    until = world.plant.start + 600.0
    first = WorldOracle(world).posterior(until)
    assert oracle("pod degraded").decides(0, 600.0) in {True, False}
    assert WorldOracle(world).posterior(until) == first


def test_a_bad_start_needs_more_flaps_than_usual_starts_have() -> None:
    world = draw_world("bad job start", 800, 2)
    within = world.background.until - world.plant.start
    assert WorldOracle(world).decides(0, within)
    # The same starts, with flaps of all their nodes at each usual start of the same fleet.
    usual = [
        NodeFault(node=node, symptom="port-flap", onset=start.at + 1.0, end=start.at + 2.0)
        for start in world.background.starts
        for node in start.nodes
    ]
    background = replace(world.background, faults=(*world.background.faults, *usual))
    assert not WorldOracle(replace(world, background=background)).decides(0, within)
