"""What the figures of the diagnosis owe to each of its constants: at half and at double its value.

`python -m bench.constants` runs the same episodes as `python -m bench.diagnosis` for each of them, on seeds
of their own. A constant that changes nothing can go; one that changes much needs a source.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.evaluation.campaign import Task, run_campaign
from bench.evaluation.constants import constants, scaled_rule
from bench.evaluation.fleets import SIZE_CLASSES
from bench.evaluation.markdown import table_head, table_row
from bench.evaluation.plants import KINDS
from bench.evaluation.results import BEFORE, EpisodeResult
from bench.evaluation.tables import Cell, cell
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import ArgumentParser, whole_number

FACTORS = (0.5, 2.0)

PRESENT = "present"

# A kind is named if its recall or precision changes by more than this.
_NAMED = 0.1

Episode = tuple[str, int, int]


def main() -> None:
    """Run the episodes that the file of results lacks, and print the table."""
    options = parser().parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    seeds = range(options.seed, options.seed + options.episodes)
    rules = [PRESENT, *(scaled_rule(name, factor) for name in options.constants for factor in FACTORS)]
    tasks = [
        Task(rule, size_class, seed, (*KINDS, BEFORE))
        for rule in rules
        for size_class in options.nodes
        for seed in seeds
    ]
    found = run_campaign(tasks, options.jobs, options.results, print_error)
    own = [result for result in found.values() if result.size_class in options.nodes and result.seed in seeds]
    print_output("\n".join(table(options.constants, own)))


def parser() -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(
        prog="python -m bench.constants",
        description="Evaluate the diagnosis with each of its constants at half and at double its value.",
    )
    add, names = parser.add_argument, list(constants())
    runs, seeds = whole_number(1, 10_000), whole_number(0, 2**31)
    add("--constants", nargs="+", choices=names, default=names, metavar="NAME", help="constants (all)")
    add("--nodes", nargs="+", type=int, choices=list(SIZE_CLASSES), default=[64, 256],
        help="size classes of the fleets (64 256)")  # fmt: skip
    add("--episodes", metavar="N", type=runs, default=4, help="of each kind, size and value (4)")
    add("--seed", metavar="N", type=seeds, default=90_000, help="the first seed (90000)")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    add("--results", metavar="FILE", type=Path, default=Path("build/constants.jsonl"),
        help="file with results, to which missing ones are added (build/constants.jsonl)")  # fmt: skip
    return parser


def table(names: Sequence[str], results: Iterable[EpisodeResult]) -> Iterator[str]:
    """Yield the table of some constants, in Markdown."""
    by_rule: dict[str, dict[Episode, EpisodeResult]] = {}
    for result in results:
        by_rule.setdefault(result.rule, {})[result.kind, result.size_class, result.seed] = result
    present = by_rule[PRESENT]
    yield f"{len(present):,} episodes for each value. As it is: {_figures(present)}."
    yield ""
    yield from table_head("constant", "value", "episodes that differ", "recall, precision, cost", "kinds")
    for name in names:
        for factor in FACTORS:
            own = by_rule[scaled_rule(name, factor)]
            differ = sum(own[key].score != result.score for key, result in present.items())
            yield table_row(
                f"`{name}`",
                f"x {factor:g}",
                str(differ),
                _figures(own) if differ else "no difference",
                ", ".join(_changes(present, own)) or "-",
            )


def _cell(results: Mapping[Episode, EpisodeResult], kind: str = "") -> Cell:
    return cell(
        [result for key, result in results.items() if key[0] == kind or (not kind and key[0] != BEFORE)], {}
    )


def _figures(results: Mapping[Episode, EpisodeResult]) -> str:
    together = _cell(results)
    shares = (_hits(together, "recall"), _hits(together, "precision"))
    texts = ("-" if part is None else f"{part:.3f}" for part in shares)
    return f"{', '.join(texts)}, {together.cost:.1f}"


def _changes(
    before: Mapping[Episode, EpisodeResult], after: Mapping[Episode, EpisodeResult]
) -> Iterator[str]:
    """Yield the kinds with a large change of the recall or of the precision: `row cooling recall -0.20`."""
    for kind in dict.fromkeys(kind for kind, _, _ in before if kind != BEFORE):
        old, new = _cell(before, kind), _cell(after, kind)
        for name in ("recall", "precision"):
            usual, changed = _hits(old, name), _hits(new, name)
            if usual is not None and changed is not None and abs(changed - usual) > _NAMED:
                yield f"{kind} {name} {changed - usual:+.2f}"


def _hits(figures: Cell, name: str) -> float | None:
    part = figures.recall if name == "recall" else figures.precision
    return part.hits / part.of if part.of else None


if __name__ == "__main__":
    main()
