"""The alternatives of a regular expression, each with the expression without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# The start of a group; a negative look-around has a line that only it keeps out, other groups one that they match.
_GROUP = re.compile(r"\((?:\?(?:P<\w+>|P=\w+|:|=|<=|(?P<negative><?!)))?")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")


@dataclass(frozen=True)
class Alternative:
    """An alternative. without: the whole expression that lacks it. is_negative: part of a negative look-around."""

    text: str
    without: str
    is_negative: bool


@dataclass
class _Group:
    """A group while it is read. start: of its current alternative. ends: those of the alternatives before."""

    start: int
    is_negative: bool
    spans: list[tuple[int, int]] = field(default_factory=list)


def alternatives(pattern: str) -> Iterator[Alternative]:
    """Yield the alternatives of all groups of an expression that have more than one."""
    groups = [_Group(0, is_negative=False)]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        end = at + 1
        if character == "\\":
            end = at + 2
        elif character == "[" and (found := _CLASS.match(pattern, at)):
            end = found.end()
        elif character == "(" and (found := _GROUP.match(pattern, at)):
            end = found.end()
            groups.append(_Group(end, found["negative"] is not None or groups[-1].is_negative))
        elif character == "|":
            groups[-1].spans.append((groups[-1].start, at))
            groups[-1].start = end
        elif character == ")":
            yield from _of_group(pattern, groups.pop(), at)
        at = end
    yield from _of_group(pattern, groups.pop(), len(pattern))


def _of_group(pattern: str, group: _Group, end: int) -> Iterator[Alternative]:
    spans = [*group.spans, (group.start, end)]
    if len(spans) == 1:
        return
    before, after = pattern[: spans[0][0]], pattern[end:]
    for start, stop in spans:
        others = "|".join(pattern[first:last] for first, last in spans if first != start)
        yield Alternative(pattern[start:stop], f"{before}{others}{after}", group.is_negative)
