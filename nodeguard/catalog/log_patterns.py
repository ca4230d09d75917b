"""The table of kernel log lines, checks/tables/kmsg.yaml, read into the model's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.config.yaml_document import YamlDocument, read_yaml, require_unique
from nodeguard.model.catalogue import LogPattern

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

# The group of a pattern that tells the slot. No pattern is of a file system: the kernel names no mount point.
_GROUPS = {"gpu": "pci", "nvswitch": "pci", "pci": "pci", "port": "dev", "disk": "dev", "dimm": "dimm"}


class _PatternRow(Struct, forbid_unknown_fields=True):
    id: str
    signal: str
    slot: Literal["gpu", "nvswitch", "pci", "port", "disk", "dimm", "node"]
    hint: str
    pattern: str
    about: str
    examples: Annotated[tuple[str, ...], Meta(min_length=1)]
    near_misses: tuple[str, ...] = ()


def load_log_patterns(folder: Path | Traversable) -> tuple[LogPattern, ...]:
    """Patterns of kmsg.yaml in a folder, in the order in which they are tried.

    Raises CatalogueError where a pattern is no expression, does not tell its slot, does not match an example,
    or matches a near miss.
    """
    located, rows = read_yaml(folder / "kmsg.yaml", tuple[_PatternRow, ...])
    require_unique(located, (((at, "id"), row.id) for at, row in enumerate(rows)))
    for at, row in enumerate(rows):
        _matches(located, at, row)
    return tuple(
        LogPattern(row.id, row.hint, row.pattern, row.signal, row.slot, row.about, row.examples[0])
        for row in rows
    )


def _matches(located: YamlDocument, at: int, row: _PatternRow) -> None:
    try:
        expression = re.compile(row.pattern)
    except re.error as error:
        raise located.error((at, "pattern"), f"is no expression: {error}", "correct it") from None
    group = _GROUPS.get(row.slot)
    if group and group not in expression.groupindex:
        problem = f"{row.slot!r} is told by a group {group!r}, which the pattern has not"
        raise located.error((at, "slot"), problem, "name the group, or write node")
    for index, example in enumerate(row.examples):
        place = (at, "examples", index)
        if row.hint not in example:
            raise located.error(place, f"has not the hint {row.hint!r}", "correct the hint or the example")
        if not expression.match(example):
            raise located.error(place, "is not matched by its pattern", "correct the pattern or the example")
    for index, line in enumerate(row.near_misses):
        if expression.match(line):
            place = (at, "near_misses", index)
            raise located.error(place, "is matched by its pattern", "narrow the pattern, or remove the line")
