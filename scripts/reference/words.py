"""The glossary, and the tables of metrics and alerts for `nodeguard explain`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from nodeguard.catalog.catalogue import builtin_folder
from nodeguard.catalog.words import read_words
from scripts.reference.listings import ROOT, families, metric_pages
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


def alerts_table() -> str:
    """All alerts of the runbook, as YAML."""
    _, *sections = (ROOT / "docs/runbooks/alerts.md").read_text("utf-8").split("\n## ")
    rows = (f"- {{{', '.join(_alert_fields(section))}}}\n" for section in sections)
    source = "the runbook docs/runbooks/alerts.md"
    about = f"# Alerts of {source}, for `nodeguard explain NAME`. Written by `make docs`; do not edit."
    return f"{about}\n{''.join(rows)}"


def _alert_fields(section: str) -> Iterator[str]:
    """Yield the fields of an alert from its section of the runbook."""
    name, *paragraphs = re.split(r"\*\*(?:Meaning|Look|Do)\.\*\*", section)
    yield f"alert: {name.strip()}"
    for field, text in zip(("meaning", "look", "remedy"), paragraphs, strict=True):
        yield f"{field}: {json.dumps(_plain(text))}"


def _plain(markdown: str) -> str:
    """Return paragraphs and tables of Markdown as text without links: a line, then each row as one."""
    text, *rows = re.split(r"(?:^|\n)\|", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown).strip())
    lines = [text, *(": ".join(row.strip("| ").split(" | ")) for row in rows[2:])]
    return "\n".join(" ".join(line.split()) for line in lines if line)
