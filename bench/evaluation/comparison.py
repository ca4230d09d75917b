"""The comparison of rules: their figures side by side, by kind and size class, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.evaluation.fleets import SIZE_CLASSES
from bench.evaluation.markdown import percent, table_head, table_row
from bench.evaluation.plants import KINDS
from bench.evaluation.results import BEFORE, ORACLE, EpisodeResult, episode_of
from bench.evaluation.tables import Cell, cell, decided_causes

# The name of all kinds, or of all sizes, together.
_ALL = "all"


def comparison(results: Sequence[EpisodeResult]) -> Iterator[str]:
    """Yield the table of several rules; nothing for one. Only episodes that all of them have run count."""
    rules = list(dict.fromkeys(result.rule for result in results if result.rule != ORACLE))
    if len(rules) < 2:
        return
    decided = decided_causes(results)
    by_rule = {
        rule: {episode_of(result): result for result in results if result.rule == rule} for rule in rules
    }
    shared = set.intersection(*(set(own) for own in by_rule.values()))
    names = " / ".join(f"`{rule}`" for rule in rules)
    yield f"{names}, {len(shared):,} episodes:"
    yield ""
    yield from table_head(
        "nodes", "cause", "episodes", "recall", "precision", "undecided", "cost, node-hours"
    )
    for size_class in (*SIZE_CLASSES, 0):
        for kind in (*KINDS, _ALL):
            keys = sorted(key for key in shared if _is_of(key, kind, size_class))
            if keys:
                cells = [cell([by_rule[rule][key] for key in keys], decided) for rule in rules]
                yield _row(kind, size_class, len(keys), cells)


def _is_of(key: tuple[str, int, int], kind: str, size_class: int) -> bool:
    return key[0] != BEFORE and kind in {_ALL, key[0]} and size_class in {0, key[1]}


def _row(kind: str, size_class: int, episodes: int, cells: Sequence[Cell]) -> str:
    recalls = [figures.recall for figures in cells]
    precisions = [figures.precision for figures in cells]
    return table_row(
        str(size_class or _ALL),
        kind,
        str(episodes),
        " / ".join(f"{part.hits / part.of:.2f}" if part.of else "-" for part in recalls),
        " / ".join(f"{part.hits / part.of:.2f}" if part.of else "-" for part in precisions),
        percent(cells[0].undecided),
        " / ".join(f"{figures.cost:.1f}" for figures in cells),
    )
