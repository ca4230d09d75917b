"""The worlds in which the diagnosis is worst: a search over what is drawn for them.

`python -m bench.corners --nodes 64 --kinds "row cooling"` searches in fleets of 16 to 128 nodes. It prints
the corner of each kind, what the rule achieves in it and at random, and commands that repeat some failures.
Only episodes that the oracle decides count. bench/evaluation/README.md explains the worlds.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from math import inf
from random import Random
from statistics import fmean

from bench.diagnosis import HELD_OUT
from bench.evaluation.background import draw_background
from bench.evaluation.campaign import RULES, Task, run_task
from bench.evaluation.corner_search import Condition, Corner, CornerSearch, Draw, Trial
from bench.evaluation.corners import drawn_parameters, is_success
from bench.evaluation.draw import ATTEMPTS, draw_plant, draw_world
from bench.evaluation.figures import share
from bench.evaluation.fleets import SIZE_CLASSES
from bench.evaluation.oracle_world import WorldOracle
from bench.evaluation.plants import KINDS
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import ArgumentParser, whole_number

# Failures of a corner that are printed with a command.
_COMMANDS = 3


def main() -> None:
    """Search, and print the corners, the worst first."""
    options = parser().parse_args()
    corners: list[tuple[float, list[str]]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for size_class in options.nodes:
            for kind in options.kinds:
                corner = search(options, kind, size_class, pool)
                rows = lines(options.rule, kind, size_class, corner)
                print_error("\n".join(rows[:2]))
                corners.append((success(corner.inside), rows))
    corners.sort(key=lambda item: item[0])
    print_output("\n".join(line for _, rows in corners for line in rows))


def parser() -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(
        prog="python -m bench.corners", description="Search for worlds in which the diagnosis is worst."
    )
    add, runs = parser.add_argument, whole_number(1, 10_000)
    add("--rule", choices=list(RULES), default="present", help="rule of the diagnosis (present)")
    add("--nodes", nargs="+", type=int, choices=list(SIZE_CLASSES), default=[64],
        help="size classes of the fleets (64)")  # fmt: skip
    add("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND",
        help="kinds of causes (all)")  # fmt: skip
    add("--rounds", metavar="N", type=runs, default=4, help="of the search (4)")
    add("--population", metavar="N", type=runs, default=24, help="episodes of a round (24)")
    add("--confirmations", metavar="N", type=runs, default=40, help="episodes to measure a corner (40)")
    add("--cost", action="store_true", help="search for the largest cost, not for the most failures")
    add("--seed", metavar="N", type=whole_number(0, 2**31), default=HELD_OUT, help=f"the first ({HELD_OUT})")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    return parser


def search(options: Namespace, kind: str, size_class: int, pool: ProcessPoolExecutor) -> Corner:
    """Return the worst corner of a kind and a size class."""
    run = partial(run_trial, options.rule, kind, size_class)

    def evaluate(draws: Sequence[Draw]) -> Iterator[Trial]:
        return pool.map(run, draws)

    settings = CornerSearch(options.rounds, options.population, options.confirmations, options.cost)
    return settings.run(worlds(kind, size_class, options.seed), evaluate, Random(options.seed))


def worlds(kind: str, size_class: int, seed: int) -> Iterator[Draw]:
    """Yield drawn worlds of a kind and a size class, from a seed on."""
    for number in count(seed):
        for attempt in range(ATTEMPTS):
            background = draw_background(size_class, number, attempt)
            plant = draw_plant(background, kind)
            if plant is not None:
                yield Draw(number, drawn_parameters(background, plant))
                break


def run_trial(rule: str, kind: str, size_class: int, draw: Draw) -> Trial:
    """Return the outcome of a rule in a world."""
    (result,) = run_task(Task(rule, size_class, draw.seed, (kind,)))
    world = draw_world(kind, size_class, draw.seed)
    oracle, until = WorldOracle(world), world.background.until
    return Trial(
        seed=draw.seed,
        parameters=draw.parameters,
        failed=not is_success(result),
        cost=result.score.healthy_out + result.score.faulty_in,
        is_decided=all(oracle.decides(index, until) for index in range(len(world.plant.causes))),
    )


def success(trials: Sequence[Trial]) -> float:
    """Return the high end of the share of the decided trials that did not fail; 1 for none."""
    decided = [trial for trial in trials if trial.is_decided]
    return share(sum(not trial.failed for trial in decided), len(decided)).high if decided else 1.0


def lines(rule: str, kind: str, size_class: int, corner: Corner) -> list[str]:
    """Return the text about a corner."""
    conditions = "; ".join(map(_text, corner.conditions))
    low, high = SIZE_CLASSES[size_class]
    worst = sorted(
        (trial for trial in (*corner.inside, *corner.found) if trial.is_decided and trial.failed),
        key=lambda trial: -trial.cost,
    )
    commands = (
        f'    python -m bench.diagnosis --rule {rule} --nodes {size_class} --kinds "{kind}" '
        f"--seed {trial.seed} --episodes 1"
        for trial in {trial.seed: trial for trial in worst}.values()
    )
    return [
        f"{kind}, {low:,} to {high:,} nodes: {conditions or 'no corner is worse than others'}",
        f"  in the corner  {_figures(corner.inside)}",
        f"  at random      {_figures(corner.outside)}",
        *[command for command, _ in zip(commands, range(_COMMANDS), strict=False)],
    ]


def _text(condition: Condition) -> str:
    if condition.low == -inf:
        return f"{condition.name} below {condition.high:g}"
    if condition.high == inf:
        return f"{condition.name} from {condition.low:g}"
    return f"{condition.name} from {condition.low:g} to {condition.high:g}"


def _figures(trials: Sequence[Trial]) -> str:
    decided = [trial for trial in trials if trial.is_decided]
    if not decided:
        return f"{len(trials)} episodes, none of them decided"
    right = share(sum(not trial.failed for trial in decided), len(decided))
    cost = fmean([trial.cost for trial in decided])
    return (
        f"success {right.hits / right.of:.2f} [{right.low:.2f}, {right.high:.2f}] in {right.of} episodes, "
        f"cost {cost:.1f} node-hours; {len(trials) - len(decided)} not decided"
    )


if __name__ == "__main__":
    main()
