"""Worlds are drawn by their seed; each kind fits a fleet of each size class."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from bench.evaluation.background import draw_background
from bench.evaluation.check_plants import FALSE_CHECKS
from bench.evaluation.draw import draw_world, plant_cause
from bench.evaluation.fleets import SIZE_CLASSES
from bench.evaluation.observed import observations, operator_changes
from bench.evaluation.plants import KINDS
from bench.evaluation.symptoms import FALSE
from bench.evaluation.world import NodeChange, Plant


def test_equal_seeds_give_equal_worlds() -> None:
    assert draw_world("leaf dead", 64, 7) == draw_world("leaf dead", 64, 7)
    assert draw_world("leaf dead", 64, 7) != draw_world("leaf dead", 64, 8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size_class", [64, 256])
def test_each_kind(kind: str, size_class: int) -> None:
    world = draw_world(kind, size_class, 1)
    background, plant = world.background, world.plant
    low, high = SIZE_CLASSES[size_class]
    assert low <= background.fleet.size <= high
    assert plant.kind == kind
    assert plant.start >= background.before
    for cause in plant.causes:
        assert cause.start >= background.before
        if cause.kind == "domain":
            assert cause.members == background.fleet.true[cause.name]
            assert set(background.fleet.labelled[cause.name]) & set(cause.members)
    for fault in plant.faults:
        assert fault.onset < fault.end


def test_worlds_of_one_background_differ_only_after_its_end() -> None:
    world = draw_world("leaf dead", 256, 3)
    background = world.background
    other = plant_cause(background, "nothing")
    assert other is not None

    def earlier(plant: Plant) -> list[object]:
        return [report for report in observations(background, plant).reports if report.at < background.before]

    assert earlier(world.plant) == earlier(other.plant)


def test_a_check_of_facts_has_false_alarms_with_a_new_catalogue_only() -> None:
    background = draw_background(64, 1)
    plants = [KINDS["false alarms"](background, Random(number)) for number in range(60)]
    new = {
        (plant.causes[0].name == "driver-library-mismatch", bool(plant.versions)) for plant in plants if plant
    }
    assert new == {(True, True), (False, True), (False, False)}


def test_few_nodes_that_break_together_report_as_those_with_a_false_alarm() -> None:
    """No diagnosis names them: a check that is suppressed on them is suppressed wrongly."""
    background = draw_background(64, 1)
    plants = [plant for number in range(60) if (plant := KINDS["few nodes"](background, Random(number)))]
    assert {len(plant.faults) for plant in plants} == {2, 3, 4}
    symptoms = {fault.symptom for plant in plants for fault in plant.faults}
    assert symptoms == {f"{FALSE}{check}" for check in FALSE_CHECKS}
    assert all(fault.is_real for plant in plants for fault in plant.faults)
    assert not any(plant.causes for plant in plants)
    assert {bool(plant.versions) for plant in plants} == {True, False}


def test_votes_are_in_the_order_of_their_reports() -> None:
    votes = draw_world("leaf dead", 800, 2).votes
    assert list(votes) == sorted(votes, key=lambda vote: (vote.reported, vote.node, vote.check))
    assert all(vote.onset <= vote.reported for vote in votes)


def test_a_cordon_lasts_until_the_last_work_ends() -> None:
    world = draw_world("nothing", 64, 1)
    background = structs.replace(
        world.background,
        changes=(
            NodeChange(0.0, 3, unschedulable=True),
            NodeChange(10.0, 3, unschedulable=True, maintenance="switch"),
            NodeChange(20.0, 3, unschedulable=False),
        ),
    )
    plant = Plant(kind="test", changes=(NodeChange(30.0, 3, unschedulable=False),))
    states = [(change.unschedulable, change.maintenance) for change in operator_changes(background, plant)]
    assert states == [(True, ""), (True, "switch"), (True, ""), (False, "")]
