"""How exact the diagnosis is in worlds drawn at random: recall, precision, delay and lost capacity.

`python -m bench.diagnosis --nodes 64 --episodes 20` runs each kind of cause in 20 fleets of 16 to 128 nodes.
`--table` prints the table of the README. bench/evaluation/README.md explains the worlds and the columns.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from bench.evaluation.campaign import RULES, Task, run_campaign
from bench.evaluation.comparison import comparison
from bench.evaluation.fleets import SIZE_CLASSES
from bench.evaluation.plants import KINDS
from bench.evaluation.results import BEFORE, ORACLE, EpisodeResult
from bench.evaluation.tables import tables
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import ArgumentParser, whole_number

# The first seed that no constant of the diagnosis was chosen by: only figures of such seeds are evidence.
HELD_OUT = 10_000

# Of the table in the README: the first seed, the episodes of each kind and size class, and the results.
SEED, EPISODES = 50_000, 200
RESULTS = Path("build/diagnosis.jsonl")

KINDS_OF_EPISODES = [*KINDS, BEFORE]


def main() -> None:
    """Run the episodes that the file of results lacks, and print the tables."""
    options = parser().parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.seed < HELD_OUT:
        print_error(f"seeds below {HELD_OUT} are for tuning: use --seed {SEED} for evidence")
    results = run_campaign(tasks(options), options.jobs, options.results, print_error)
    own = selected(options, results.values())
    print_output("\n".join((*tables(own, is_short=options.table), "", *comparison(own))).rstrip())


def parser() -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(
        prog="python -m bench.diagnosis", description="Evaluate the diagnosis in worlds drawn at random."
    )
    add = parser.add_argument
    runs, seeds = whole_number(1, 10_000), whole_number(0, 2**31)
    add("--rule", nargs="+", choices=[*RULES, ORACLE], default=["present"], help="rules (present)")
    add("--nodes", nargs="+", type=int, choices=list(SIZE_CLASSES), default=list(SIZE_CLASSES),
        help="size classes of the fleets (all)")  # fmt: skip
    add("--kinds", nargs="+", choices=KINDS_OF_EPISODES, default=KINDS_OF_EPISODES, metavar="KIND",
        help=f"kinds of causes (all): {', '.join(KINDS_OF_EPISODES)}")  # fmt: skip
    add("--episodes", metavar="N", type=runs, default=EPISODES, help=f"of each kind and size ({EPISODES})")
    add("--seed", metavar="N", type=seeds, default=SEED, help=f"the first seed ({SEED})")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    add("--results", metavar="FILE", type=Path, default=RESULTS,
        help=f"file with the results, to which those that it lacks are added ({RESULTS})")  # fmt: skip
    add("--table", action="store_true", help="print only the table of the README")
    return parser


def tasks(options: Namespace) -> list[Task]:
    """Return the episodes that the options ask for."""
    return [
        Task(rule, size_class, seed, tuple(options.kinds))
        for size_class in options.nodes
        for seed in range(options.seed, options.seed + options.episodes)
        for rule in options.rule
    ]


def selected(options: Namespace, results: Iterable[EpisodeResult]) -> list[EpisodeResult]:
    """Return the results that the options ask for, in their order."""
    seeds = range(options.seed, options.seed + options.episodes)
    return sorted(
        (
            result
            for result in results
            if result.rule in options.rule
            and result.size_class in options.nodes
            and result.kind in options.kinds
            and result.seed in seeds
        ),
        key=lambda result: (options.rule.index(result.rule), result.size_class, result.seed, result.kind),
    )


if __name__ == "__main__":
    main()
