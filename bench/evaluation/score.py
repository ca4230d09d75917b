"""The score of an episode: what was named, what was named wrongly, and the capacity that it cost. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from bench.evaluation.observed import operator_changes
from bench.evaluation.replay import Span
from bench.evaluation.spans import Spans, seconds, subtract, union
from bench.evaluation.symptoms import symptom_of
from bench.evaluation.world import Background, Cause, Fleet, NodeChange, NodeFault, Path, Plant

_HOUR = 3600.0


class WrongDomain(Struct, frozen=True):
    """A domain that is diagnosed without its fault. nodes: that its labels name."""

    name: Path
    at: float
    nodes: int


class Score(Struct, frozen=True, kw_only=True):
    """The score of a part of an episode.

    hours: its length. named: seconds until the diagnosis of each cause, None for not at all. wrong: domains.
    suppressed: check-hours for which a check was suppressed wrongly. healthy_out: healthy node-hours with a
    mark; faulty_in: node-hours of real faults without one. Neither counts while an operator keeps the node
    out, or it is down.
    """

    hours: float
    named: tuple[float | None, ...] = ()
    wrong: tuple[WrongDomain, ...] = ()
    suppressed: float = 0.0
    healthy_out: float = 0.0
    faulty_in: float = 0.0


Marked = Sequence[tuple[int, float, float]]


def score(
    background: Background, plant: Plant, spans: Sequence[Span], marked: Marked, start: float, end: float
) -> Score:
    """Return the score between two times. marked: node, start and end of each time with a mark."""
    named = tuple(_named(cause, spans, background.fleet) for cause in plant.causes)
    healthy_out, faulty_in = _capacity(background, plant, marked, start, end)
    suppressed = [
        (span.start, span.end) for span in spans if span.topic == "check" and not _is_expected(span, plant)
    ]
    return Score(
        hours=(end - start) / _HOUR,
        named=named,
        wrong=tuple(_wrong(background.fleet, plant, spans, named, start, end)),
        suppressed=sum(seconds([span], start, end) for span in suppressed) / _HOUR,
        healthy_out=healthy_out / _HOUR,
        faulty_in=faulty_in / _HOUR,
    )


def _named(cause: Cause, spans: Iterable[Span], fleet: Fleet) -> float | None:
    """Return the seconds from a cause to the diagnosis that names it; None if none does."""
    times = (span.start for span in spans if span.end >= cause.start and _names(span, cause, fleet))
    first = min(times, default=None)
    return None if first is None else max(0.0, first - cause.start)


def _names(span: Span, cause: Cause, fleet: Fleet) -> bool:
    """Return whether a diagnosis names a cause: domains with the same members, by labels, are one."""
    match cause.kind:
        case "domain":
            members = fleet.labelled[cause.name]
            return span.topic == "domain" and (
                span.name == cause.name or fleet.labelled.get(span.name) == members
            )
        case "version":
            return cause.name in {span.name, span.domain}
        case "job":
            return span.topic == "job" and span.name == cause.name
        case "check" | "observer":
            return span.topic == "check" and span.name == cause.name


def _is_expected(span: Span, plant: Plant) -> bool:
    """Return whether a check is rightly suppressed."""
    return any(
        (cause.kind in {"check", "observer"} and span.name == cause.name)
        or (cause.kind == "version" and span.domain == cause.name)
        for cause in plant.causes
    )


def _wrong(
    fleet: Fleet,
    plant: Plant,
    spans: Iterable[Span],
    named: Sequence[float | None],
    start: float,
    end: float,
) -> Iterable[WrongDomain]:
    """Yield the domains that were diagnosed without a fault, each once. A part of a domain that was diagnosed
    before the whole one belongs to it.
    """
    wrong: dict[Path, WrongDomain] = {}
    for span in spans:
        if span.topic != "domain" or not start <= span.start < end or span.name in wrong:
            continue
        members = fleet.labelled.get(span.name, ())
        if not any(
            _names(span, cause, fleet) or _is_part(span, members, cause, seconds, fleet)
            for cause, seconds in zip(plant.causes, named, strict=True)
        ):
            wrong[span.name] = WrongDomain(span.name, span.start, len(members))
    return wrong.values()


def _is_part(span: Span, members: tuple[int, ...], cause: Cause, named: float | None, fleet: Fleet) -> bool:
    return (
        cause.kind == "domain"
        and named is not None
        and span.start <= cause.start + named
        and set(members) <= set(fleet.labelled[cause.name])
    )


def _capacity(
    background: Background, plant: Plant, marked: Marked, start: float, end: float
) -> tuple[float, float]:
    """Return the healthy node-seconds with a mark, and those of real faults without one."""
    faults = (*background.faults, *plant.faults)
    faulty = _by_node((fault.node, fault.onset, fault.end) for fault in faults if fault.is_real)
    down = _by_node(_down(faults))
    out = _by_node(_cordoned(operator_changes(background, plant), end))
    marks = _by_node(marked)
    shared = [
        (frozenset(cause.members), (cause.start, cause.end))
        for cause in plant.causes
        if cause.kind == "domain"
    ]
    healthy_out = sum(
        seconds(
            subtract(
                spans,
                union(
                    (
                        *faulty.get(node, ()),
                        *down.get(node, ()),
                        *out.get(node, ()),
                        *(span for members, span in shared if node in members),
                    )
                ),
            ),
            start,
            end,
        )
        for node, spans in marks.items()
    )
    faulty_in = sum(
        seconds(
            subtract(spans, union((*marks.get(node, ()), *down.get(node, ()), *out.get(node, ())))),
            start,
            end,
        )
        for node, spans in faulty.items()
    )
    return healthy_out, faulty_in


def _down(faults: Iterable[NodeFault]) -> Iterable[tuple[int, float, float]]:
    return ((fault.node, fault.onset, fault.end) for fault in faults if not symptom_of(fault.symptom).check)


def _cordoned(changes: Iterable[NodeChange], end: float) -> Iterable[tuple[int, float, float]]:
    since: dict[int, float] = {}
    for change in changes:
        if change.unschedulable:
            since.setdefault(change.node, change.at)
        elif change.node in since:
            yield change.node, since.pop(change.node), change.at
    yield from ((node, start, end) for node, start in since.items())


def _by_node(times: Iterable[tuple[int, float, float]]) -> Mapping[int, Spans]:
    spans: dict[int, Spans] = defaultdict(list)
    for node, start, end in times:
        spans[node].append((start, end))
    return {node: union(times) for node, times in spans.items()}
