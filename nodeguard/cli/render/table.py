"""Tables on a terminal: a header, one row for each item, and a last column that is cut to the width."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.render.terminal import StyledLine, StyledText, printable

# Columns below which the last cell gets a line of its own.
_LEAST = 24

# The cell of a value that does not exist.
NONE = StyledText("-", "dim")


def table_lines(
    headers: Sequence[str], rows: Sequence[Sequence[StyledText]], columns: int | None
) -> list[StyledLine]:
    """Return a table. columns: width to which the last column is cut; None for no limit."""
    cells = [[StyledText(printable(cell.text), cell.style) for cell in row] for row in rows]
    headers, widths = list(headers), _widths(headers, cells)
    if columns is not None and columns < sum(width + 2 for width in widths[:-1]) + _LEAST:
        # Columns without any value take no room on a narrow terminal.
        shown = [index for index in range(len(headers)) if any(row[index].text != NONE.text for row in cells)]
        shown = [*shown, *([] if len(headers) - 1 in shown else [len(headers) - 1])]
        headers = [headers[index] for index in shown]
        cells = [[row[index] for index in shown] for row in cells]
        widths = _widths(headers, cells)
    room = None if columns is None else columns - sum(width + 2 for width in widths[:-1])
    if room is not None and room < _LEAST:
        lines = [_line([StyledText(header, "dim") for header in headers[:-1]], widths)]
        for row in cells:
            lines.append(_line(row[:-1], widths))
            if row[-1].text:
                lines.append(StyledLine((StyledText("  "), _cut(row[-1], (columns or 0) - 2))))
        return lines
    header = [StyledText(text, "dim") for text in headers]
    return [_line([*row[:-1], _cut(row[-1], room)], widths) for row in (header, *cells)]


def _widths(headers: Sequence[str], rows: Sequence[Sequence[StyledText]]) -> list[int]:
    return [max(len(header), *(len(row[index].text) for row in rows)) for index, header in enumerate(headers)]


def _cut(cell: StyledText, room: int | None) -> StyledText:
    if room is None or len(cell.text) <= room:
        return cell
    return StyledText(f"{cell.text[: room - 1]}…", cell.style)


def _line(cells: Sequence[StyledText], widths: Sequence[int]) -> StyledLine:
    *first, last = cells
    parts = [
        StyledText(f"{cell.text:<{width}}  ", cell.style) for cell, width in zip(first, widths, strict=False)
    ]
    return StyledLine((*parts, last))
