"""Tables of error codes, decoding rules and log patterns, loaded from checks/tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from nodeguard.config.errors import FieldPath
from nodeguard.config.yaml_document import YamlDocument, load_yaml, read_yaml, require_unique
from nodeguard.model.catalogue import (
    ActionResponse,
    Catalogue,
    LogPattern,
    Nvlink5Rule,
    RecoveryAction,
    Sxid,
    Xid,
    Xid74Bits,
)
from nodeguard.model.finding import Action
from nodeguard.model.projection import project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path


# The regex group that names the target. File systems have no pattern: the kernel does not log mount points.
_TARGET_GROUPS = {"gpu": "pci", "nvswitch": "pci", "pci": "pci", "port": "dev", "disk": "dev", "dimm": "dimm"}


# Parts that patterns share, by their name in kmsg.yaml.
_SHARED = {
    # The table names these disks.
    "{host-disk}": r"(?!(?:fd|sr|loop|zram|ram|nbd|rbd|drbd)\d)",
    "{nvrm}": r"NVRM:? (?:GPU\d+ )?(?:\w+: )?",
    "{nvrm-gpu}": r"NVRM:? (?:GPU\d+ )?",
    # MLNX_OFED 4.x repeats the address; messages of the level info have neither function nor process.
    "{mlx5}": r"(?:(?:[0-9a-f:.]+:)?\w+:\d+:(?:\(pid \d+\):)? )?",
}


# Rows as YAML has them: no unknown fields, with defaults, and with what only the validation uses.
class _PatternRow(LogPattern, frozen=True, kw_only=True, forbid_unknown_fields=True):
    target: Literal["gpu", "nvswitch", "pci", "port", "disk", "dimm", "node"]
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
        project(LogPattern, row, pattern=_expanded(row.pattern), example=row.examples[0]) for row in rows
    )


def _expanded(pattern: str) -> str:
    """Return a pattern with the parts that it shares with others."""
    for name, expression in _SHARED.items():
        pattern = pattern.replace(name, expression)
    return pattern


def _check_examples(document: YamlDocument, at: int, row: _PatternRow) -> None:
    """Refuse a pattern that does not fit its target kind, its examples or its near misses."""
    try:
        expression = re.compile(_expanded(row.pattern))
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


Responses = dict[str, ActionResponse]
Topic = (
    Literal["lost", "ecc", "repair", "gsp", "nvlink", "nvlink5", "recovery"]
    | Literal["power", "confidential", "c2c", "pcie", "engine", "security", "test"]
)


class _XidRow(Xid, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Topic
    workload: Literal["yes", "possible", "unlikely", "no", "unknown"] = "unknown"
    investigate: str = "unknown"
    applies_to: tuple[Literal["A100", "H100", "B100", "GB200"], ...] = ()


class _SxidBlock(Struct, forbid_unknown_fields=True):
    block: str
    codes: tuple[Sxid, ...]


class _ResponseRow(Struct, forbid_unknown_fields=True):
    name: str
    verdict: Literal["fatal", "suspect", "warning", "ignored"]
    action: Action
    meaning: str


def load_tables(folder: Path | Traversable) -> Catalogue:
    """Return a catalogue with every table of a folder, without checks and platforms.

    Raises ConfigError for a missing or invalid file.
    """
    responses = _responses(folder)
    return Catalogue(
        xids=_xids(folder, responses),
        sxids=_sxids(folder, responses),
        nvlink5=_nvlink5(folder, responses),
        responses=responses,
        patterns=load_log_patterns(folder),
        xid74=_xid74(folder, responses),
        recovery=_recovery(folder),
    )


def _responses(folder: Path | Traversable) -> Responses:
    document, rows = read_yaml(folder / "responses.yaml", tuple[_ResponseRow, ...])
    require_unique(document, (((index, "name"), row.name) for index, row in enumerate(rows)))
    return {row.name: ActionResponse(row.verdict, row.action.value, row.meaning) for row in rows}


def _xids(folder: Path | Traversable, responses: Responses) -> dict[int, Xid]:
    document, rows = read_yaml(folder / "xid.yaml", tuple[_XidRow, ...])
    require_unique(document, (((index, "code"), row.code) for index, row in enumerate(rows)))
    codes = {row.code for row in rows}
    for index, row in enumerate(rows):
        _require_response(document, (index,), responses, action=row.action, investigate=row.investigate)
    for index, row in enumerate(rows):
        for code in row.ended_by:
            if code not in codes:
                problem = f"the table has no Xid {code}"
                raise document.error((index, "ended_by"), problem, "name a code of the table")
    return {row.code: project(Xid, row, action=_response_word(row)) for row in rows}


# Names of conditions that no program survives, such as PCIE_FATAL_TIMEOUT or SEC2_HALT_ERROR.
_FAILURE = re.compile(r"(?<!NON_)FATAL|HALT|FAILURE")


def _response_word(row: _XidRow) -> str:
    """Return the action word of a code, with ours where NVIDIA's cell is blank or only filled up.

    A blank cell is no reason to go on if the name of the code states a failure. CONTACT_SUPPORT is
    what the catalogue writes for each code that no data-centre part uses.
    """
    if row.action == "unknown" and _FAILURE.search(row.name):
        return "unknown_failure"
    return "unused" if row.action == "CONTACT_SUPPORT" and not row.applies_to else row.action


def _sxids(folder: Path | Traversable, responses: Responses) -> dict[int, Sxid]:
    document, blocks = read_yaml(folder / "sxid.yaml", tuple[_SxidBlock, ...])
    rows = [((b, "codes", c), row) for b, block in enumerate(blocks) for c, row in enumerate(block.codes)]
    require_unique(document, (((*place, "code"), row.code) for place, row in rows))
    for place, row in rows:
        _require_response(document, place, responses, action=row.action)
    return {row.code: replace(row, block=block.block) for block in blocks for row in block.codes}


def _nvlink5(folder: Path | Traversable, responses: Responses) -> tuple[Nvlink5Rule, ...]:
    document, rows = read_yaml(folder / "nvlink5.yaml", tuple[Nvlink5Rule, ...])
    for index, row in enumerate(rows):
        _require_response(document, (index,), responses, action=row.action, investigate=row.investigate)
        for field, (mask, value) in (("v1", row.v1), ("v2", row.v2)):
            if value & ~mask:
                problem = f"the value 0x{value:08x} has bits that the mask 0x{mask:08x} takes away"
                raise document.error((index, field), problem, "correct one of them: it can never match")
    return rows


def _xid74(folder: Path | Traversable, responses: Responses) -> tuple[Xid74Bits, ...]:
    document, rows = read_yaml(folder / "xid74.yaml", tuple[Xid74Bits, ...])
    require_unique(
        document,
        (((index, "bits"), (row.register, bit)) for index, row in enumerate(rows) for bit in row.bits),
    )
    for index, row in enumerate(rows):
        _require_response(document, (index,), responses, action=row.action)
    return rows


def _recovery(folder: Path | Traversable) -> dict[int, RecoveryAction]:
    document, rows = read_yaml(folder / "recovery.yaml", tuple[RecoveryAction, ...])
    require_unique(document, (((index, "value"), row.value) for index, row in enumerate(rows)))
    return {row.value: row for row in rows}


def _require_response(document: YamlDocument, path: FieldPath, responses: Responses, **actions: str) -> None:
    """Refuse an action, by field, that responses.yaml does not list."""
    for field, action in actions.items():
        if action not in responses:
            remedy = "use a name of responses.yaml, or add it there"
            raise document.error((*path, field), f"{action!r} has no response", remedy)


def example_lines(folder: Traversable) -> Iterator[str]:
    """Yield the lines of the kernel log that the tables of a folder have as examples of known formats."""
    for name in ("kmsg.yaml", "kmsg-formats.yaml"):
        yield from _examples(load_yaml(folder / name).data)


def _examples(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for field, item in value.items():
            if field == "line":
                yield item
            elif field == "examples":
                yield from item
            else:
                yield from _examples(item)
    elif isinstance(value, list):
        for item in value:
            yield from _examples(item)
