"""Patterns of kernel log lines, loaded from checks/tables/kmsg.yaml."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.config.yaml_document import YamlDocument, read_yaml, require_unique
from nodeguard.model.catalogue import LogPattern

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

# The regex group that names the target. File systems have no pattern: the kernel does not log mount points.
_TARGET_GROUPS = {"gpu": "pci", "nvswitch": "pci", "pci": "pci", "port": "dev", "disk": "dev", "dimm": "dimm"}


class _PatternRow(Struct, forbid_unknown_fields=True):
    id: str
    signal: str
    target: Literal["gpu", "nvswitch", "pci", "port", "disk", "dimm", "node"]
    hint: str
    pattern: str
    description: str
    examples: Annotated[tuple[str, ...], Meta(min_length=1)]
    near_misses: tuple[str, ...] = ()


def load_log_patterns(folder: Path | Traversable) -> tuple[LogPattern, ...]:
    """Return the patterns of kmsg.yaml in a folder, in the order in which they are tried.

    Raises ConfigError for an invalid regular expression, a pattern without the group for its target, one that
    does not match an example, or one that matches a near miss.
    """
    document, rows = read_yaml(folder / "kmsg.yaml", tuple[_PatternRow, ...])
    require_unique(document, (((index, "id"), row.id) for index, row in enumerate(rows)))
    for index, row in enumerate(rows):
        _check_examples(document, index, row)
    return tuple(
        LogPattern(row.id, row.hint, row.pattern, row.signal, row.target, row.description, row.examples[0])
        for row in rows
    )


def _check_examples(document: YamlDocument, at: int, row: _PatternRow) -> None:
    """Refuse a pattern that does not fit its target kind, its examples or its near misses."""
    try:
        expression = re.compile(row.pattern)
    except re.error as error:
        raise document.error((at, "pattern"), f"is no expression: {error}", "correct it") from None
    group = _TARGET_GROUPS.get(row.target)
    if group and group not in expression.groupindex:
        problem = f"{row.target!r} needs a group {group!r}, which the pattern does not have"
        raise document.error((at, "target"), problem, "name the group, or write node")
    for index, example in enumerate(row.examples):
        place = (at, "examples", index)
        if row.hint not in example:
            raise document.error(
                place, f"does not contain the hint {row.hint!r}", "correct the hint or the example"
            )
        if not expression.match(example):
            raise document.error(place, "is not matched by its pattern", "correct the pattern or the example")
    for index, line in enumerate(row.near_misses):
        if expression.match(line):
            place = (at, "near_misses", index)
            raise document.error(place, "is matched by its pattern", "narrow the pattern, or remove the line")
