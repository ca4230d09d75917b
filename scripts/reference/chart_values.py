"""Reference page of the values of the Helm chart, from values.yaml with its comments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from scripts.reference.markdown import code, page, table

_FILE = Path(__file__).parents[2] / "daemonset" / "chart" / "values.yaml"

# Lists and maps of more characters are not shown as a default.
_MAX_DEFAULT = 120


class Value(NamedTuple):
    """One value or section. path: its keys. comment: the lines above it."""

    path: tuple[str, ...]
    comment: str


def values() -> list[Value]:
    """Return the values and sections in the order of the file."""
    documented: list[Value] = []
    path: list[str] = []
    comment: list[str] = []
    # The comment at the top describes the file.
    for line in _FILE.read_text("utf-8").partition("\n\n")[2].splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.removeprefix("#").strip())
        elif text and not text.startswith("-"):
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], text.partition(":")[0]]
            documented.append(Value(tuple(path), " ".join(comment)))
        if not text.startswith("#"):
            comment = []
    return documented


def chart_values() -> str:
    """All values with default and meaning."""
    return page(
        "Values of the Helm chart",
        "The values of `daemonset/chart`, with their defaults. Helm refuses other names and types.",
        "",
        *table(("value", "default", "meaning"), _rows()),
    )


def _rows() -> Iterator[tuple[str, str, str]]:
    defaults = yaml.safe_load(_FILE.read_text("utf-8"))
    free: tuple[str, ...] | None = None
    for path, comment in values():
        if free is not None and path[: len(free)] == free:
            continue
        default = _default(defaults, path)
        is_section = isinstance(default, dict) and default and not _is_free(path)
        if is_section:
            if comment:
                yield code(".".join(path)), "", comment
            continue
        free = path
        yield code(".".join(path)), _shown(default), comment


def _is_free(path: tuple[str, ...]) -> bool:
    """Return whether a map has keys of the site: its schema names none of them."""
    schema = json.loads(_FILE.with_name("values.schema.json").read_text("utf-8"))
    for key in path:
        schema = schema["properties"][key]
    return "properties" not in schema or path[-1] == "resources"


def _default(defaults: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        defaults = defaults[key]
    return defaults


def _shown(default: Any) -> str:
    if isinstance(default, bool | list | dict):
        text = json.dumps(default)
        return code(text) if len(text) <= _MAX_DEFAULT else "see the file"
    return code(str(default)) if default != "" else ""
