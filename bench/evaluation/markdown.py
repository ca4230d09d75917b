"""Tables in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def table_head(*titles: str) -> Iterator[str]:
    """Yield the first two lines of a table."""
    yield table_row(*titles)
    yield f"|{'---|' * len(titles)}"


def table_row(*values: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(values)} |"


def percent(value: float | None) -> str:
    """Return a share as text: `13%`, or a hyphen for none."""
    return "-" if value is None else f"{value:.0%}"
