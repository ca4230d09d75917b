"""Words that nodeguard prints, loaded from checks/tables/words.yaml; metrics and alerts from their tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from nodeguard.config.yaml_document import read_yaml, require_unique
from nodeguard.model.catalogue import Alert, Word

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

# Characters that do not matter in a name: `dry run`, `dry-run` and `DryRun` are one word.
_SEPARATORS = str.maketrans("", "", " -_")


class WordRow(Word, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of words.yaml.

    group: its heading in the glossary. type: dotted path of what holds it in the code; empty for a word of
    the output only.
    """

    group: str
    type: str = ""


class _MetricRow(Struct, frozen=True, forbid_unknown_fields=True):
    metric: str
    meaning: str


def read_words(folder: Path | Traversable) -> tuple[WordRow, ...]:
    """Return the rows of words.yaml in a folder. Raises ConfigError for a name that two rows have."""
    document, rows = read_yaml(folder / "words.yaml", tuple[WordRow, ...])
    names = [
        ((index, "names", at), _key(name))
        for index, row in enumerate(rows)
        for at, name in enumerate(row.names)
    ]
    require_unique(document, names)
    return rows


def load_words(folder: Path | Traversable) -> tuple[Word, ...]:
    """Return the words of a folder, and its metrics. Raises ConfigError for an invalid file."""
    words = [Word(row.names, row.meaning) for row in read_words(folder)]
    _, metrics = read_yaml(folder / "metrics.yaml", tuple[_MetricRow, ...])
    return (*words, *(Word((row.metric,), f"Metric. {row.meaning}") for row in metrics))


def load_alerts(folder: Path | Traversable) -> tuple[Alert, ...]:
    """Return the alerts of a folder. Raises ConfigError for an invalid file."""
    return read_yaml(folder / "alerts.yaml", tuple[Alert, ...])[1]


def find_alert(alerts: Iterable[Alert], text: str) -> Alert | None:
    """Return the first alert that a text names, in any case, or None."""
    words = set(re.findall(r"\w+", text.lower()))
    return next((alert for alert in alerts if alert.alert.lower() in words), None)


def find_word(words: Iterable[Word], text: str) -> Word | None:
    """Return the word with a name, in any case and with any separators, or None."""
    key = _key(text)
    by_name = {_key(name): word for word in words for name in word.names}
    patterns = (name for name in by_name if "*" in name and fnmatchcase(key, name))
    return by_name.get(key) or next((by_name[name] for name in patterns), None)


def _key(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
