"""The glossary, and the table of metrics for `nodeguard explain`."""

from __future__ import annotations

import json

from nodeguard.catalog.catalogue import builtin_folder
from nodeguard.catalog.words import read_words
from scripts.reference.listings import families, metric_pages
from scripts.reference.markdown import code, page, table

_ABOUT = """\
One word for one thing, in code, output, metrics and these pages. The second column is the type that holds it,
which a test checks. Words of Kubernetes, Prometheus, NVIDIA and InfiniBand keep their meaning.
`nodeguard explain WORD` prints the meaning in a terminal."""


def glossary() -> str:
    """All words with a type by group, then the states and reasons of the output."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in read_words(builtin_folder() / "tables"):
        term = (row.names[0], code(row.type), row.meaning) if row.type else (row.names[0], row.meaning)
        groups.setdefault(row.group, []).append(term)
    lines = [_ABOUT, ""]
    for group, rows in groups.items():
        header = ("term", "type", "meaning") if rows[0][2:] else ("term", "meaning")
        lines += [f"## {group}", "", *table(header, rows)]
    return page("Glossary", *lines)


def metrics_table() -> str:
    """All metrics with their help, as YAML."""
    helps = {name: about for _, _, text in metric_pages() for name, _, _, about in families(text)}
    rows = (f"- {{metric: {name}, meaning: {json.dumps(about)}}}\n" for name, about in sorted(helps.items()))
    return f"# Metrics, for `nodeguard explain NAME`. Written by `make docs`; do not edit.\n{''.join(rows)}"
