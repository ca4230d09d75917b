"""Labels in a policy file, held against what Kubernetes accepts of a Node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodeguard.catalog.forms import Place
from nodeguard.catalog.located import Located

# Source: Kubernetes, labels and selectors, syntax and character set.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def refuse_labels(located: Located) -> None:
    """Raises CatalogueError for labels that no Node can have, before the form says less of them."""
    for place, labels in _labels(located.data):
        for key, value in labels.items():
            _refuse_label(located, (*place, key), key, value)


def _labels(data: Any) -> Iterator[tuple[Place, dict[Any, Any]]]:
    for part in ("pools", "holds"):
        rows = data.get(part) if isinstance(data, dict) else None
        for at, row in enumerate(rows if isinstance(rows, list) else ()):
            labels = row.get("labels") if isinstance(row, dict) else None
            if isinstance(labels, dict):
                yield (part, at, "labels"), labels


def _refuse_label(located: Located, place: Place, key: Any, value: Any) -> None:
    prefix, slash, name = str(key).rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= 253)):
        problem = f"'{key}' is no label key that Kubernetes accepts"
        raise located.error(place, problem, "write it like rack or topology.kubernetes.io/zone")
    if isinstance(value, (bool, int, float)):
        written = str(value).lower()
        raise located.error(place, f"{written} is no text", "put it in quotes, as labels are text")
    if not isinstance(value, str):
        raise located.error(place, "is no label value", "write one value as text")
    if value and not _NAME.fullmatch(value):
        problem = f"'{value}' is no label value that Kubernetes accepts"
        remedy = "write up to 63 letters, digits, '-', '_' and '.', a letter or digit first and last"
        raise located.error(place, problem, remedy)
