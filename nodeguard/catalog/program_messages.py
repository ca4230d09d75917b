"""Messages of programs, loaded from checks/tables/program-messages.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from nodeguard.config.yaml_document import read_yaml, require_unique
from nodeguard.model.catalogue import ProgramMessage
from nodeguard.model.projection import project

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path


class _Row(ProgramMessage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    examples: Annotated[tuple[str, ...], Meta(min_length=1)]


def load_program_messages(folder: Path | Traversable, checks: Iterable[str]) -> tuple[ProgramMessage, ...]:
    """Return the messages of program-messages.yaml in a folder, in the order in which they are tried.

    checks: ids of all checks. Raises ConfigError for an invalid expression, an example that the row does not
    explain, a check that does not exist, and a second row with the same title.
    """
    document, rows = read_yaml(folder / "program-messages.yaml", tuple[_Row, ...])
    require_unique(document, (((index, "title"), row.title) for index, row in enumerate(rows)))
    ids = set(checks)
    for index, row in enumerate(rows):
        try:
            re.compile(row.pattern)
        except re.error as error:
            raise document.error((index, "pattern"), f"is no expression: {error}", "correct it") from None
        for number, name in enumerate(row.checks):
            if name not in ids:
                raise document.error(
                    (index, "checks", number), f"{name!r} is no check", "see `nodeguard checks`"
                )
    for index, row in enumerate(rows):
        for number, example in enumerate(row.examples):
            first = find_program_message(rows, example)
            if first is not row:
                problem = f"is explained by '{first.title}'" if first else "is not matched by its pattern"
                remedy = "correct the pattern, or the order of the rows"
                raise document.error((index, "examples", number), problem, remedy)
    return tuple(project(ProgramMessage, row) for row in rows)


def find_program_message(messages: Iterable[ProgramMessage], text: str) -> ProgramMessage | None:
    """Return the first message that a text contains, in any case and with any line breaks, or None."""
    line = " ".join(text.split())
    return next((item for item in messages if re.search(item.pattern, line, re.IGNORECASE)), None)
