from __future__ import annotations

from itertools import islice
from math import inf

from bench.corners import lines, parser, success, worlds
from bench.evaluation.corner_search import Condition, Corner, Trial
from bench.evaluation.corners import drawn_parameters
from bench.evaluation.draw import draw_world


def trial(seed: int, *, failed: bool, is_decided: bool = True) -> Trial:
    return Trial(seed, {}, failed, 2.0 * seed, is_decided)


CORNER = Corner(
    conditions=(
        Condition("members", -inf, 9.0),
        Condition("spread, s", 10.0, inf),
        Condition("pods", 2.0, 4.0),
    ),
    inside=(trial(1, failed=True), trial(2, failed=False), trial(3, failed=True, is_decided=False)),
    outside=(trial(4, failed=False),),
    found=(trial(4, failed=False), trial(5, failed=True)),
)


def test_worlds_are_those_of_the_evaluation() -> None:
    for draw in islice(worlds("row cooling", 64, 20_000), 2):
        world = draw_world("row cooling", 64, draw.seed)
        assert draw.parameters == drawn_parameters(world.background, world.plant)


def test_the_text_of_a_corner() -> None:
    text = lines("simple", "row cooling", 64, CORNER)
    assert text[0] == ("row cooling, 16 to 128 nodes: members below 9; spread, s from 10; pods from 2 to 4")
    assert text[1].startswith("  in the corner  success 0.50 [")
    assert text[1].endswith("in 2 episodes, cost 3.0 node-hours; 1 not decided")
    assert text[3:] == [
        f'    python -m bench.diagnosis --rule simple --nodes 64 --kinds "row cooling" --seed {seed} --episodes 1'
        for seed in (5, 1)
    ]


def test_a_corner_without_conditions_or_decided_episodes() -> None:
    corner = Corner((), (trial(1, failed=True, is_decided=False),), (), ())
    assert lines("present", "version", 64, corner)[0].endswith("no corner is worse than others")
    assert success(corner.inside) == 1.0


def test_options() -> None:
    options = parser().parse_args(["--nodes", "64", "256", "--kinds", "version", "--cost"])
    assert (options.nodes, options.kinds, options.cost) == ([64, 256], ["version"], True)
