"""Times as sorted spans that do not overlap. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Spans = list[tuple[float, float]]


def union(spans: Iterable[tuple[float, float]]) -> Spans:
    """Return some spans, merged where they overlap."""
    merged: Spans = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def subtract(spans: Spans, others: Spans) -> Spans:
    """Return the parts of some spans that are in no other one."""
    rest: Spans = []
    for start, end in spans:
        at = start
        for other_start, other_end in others:
            if other_end <= at or other_start >= end:
                continue
            if other_start > at:
                rest.append((at, other_start))
            at = max(at, other_end)
        if at < end:
            rest.append((at, end))
    return rest


def seconds(spans: Spans, start: float, end: float) -> float:
    """Return the seconds of some spans between two times."""
    return sum(max(0.0, min(end, span_end) - max(start, span_start)) for span_start, span_end in spans)
