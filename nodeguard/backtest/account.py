"""What a policy comes to, held against what happened next. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nodeguard.backtest.marks import Asked, End, Marks, Span
from nodeguard.backtest.spells import Over, Spell, Spells
from nodeguard.fleet.want import resource_of
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy, Soak


class Next(Struct, frozen=True):
    """What happened next to a finding for which a mark was set, or not.

    over: how it ended, and lasted: after how many seconds from then on; None where it has not. brief: whether
    it ended by itself, and within the first soak: the mark kept a node from work that soon was well. again:
    whether the same was found within the time after which a soak forgets. worse: whether what was suspect
    was found to be fatal, then or within that time after.
    """

    over: Over = Over.OPEN
    lasted: float | None = None
    brief: bool = False
    again: bool = False
    worse: bool = False


class Entry(Struct, frozen=True):
    """A span within the time that is looked at, and what happened next. Fields as in marks.Span."""

    asked: Asked
    state: State
    began: float
    ended: float | None
    end: End
    next: Next
    whys: tuple[str, ...] = ()


class OfCheck(Struct, frozen=True):
    """What one check came to, for one kind of mark.

    marked: marks that were set, on so many nodes, for so many seconds together. brief, again, worse: of
    these, see Next. withheld, observed: how many were asked for and not set. spared: of
    these, how many were over by themselves within the first soak, for good; missed: how many were found to be
    fatal, or found again. settled: how many were over before they settled, counted by check alone.
    """

    check: str
    mark: Mark
    marked: int = 0
    nodes: int = 0
    seconds: float = 0.0
    brief: int = 0
    again: int = 0
    worse: int = 0
    withheld: int = 0
    observed: int = 0
    spared: int = 0
    missed: int = 0
    settled: int = 0


class Account(Struct, frozen=True):
    """What a policy comes to from one moment to another, in seconds since the epoch.

    entries: by their beginning. checks: what took out most first. nodes: that were marked; seconds: for which
    they were, all together, each once at a time. most: nodes marked at a time, and at: when. reasons: why
    marks were withheld, the most frequent first.
    """

    since: float
    until: float
    entries: tuple[Entry, ...]
    checks: tuple[OfCheck, ...]
    nodes: int
    seconds: float
    most: int
    at: float
    reasons: tuple[tuple[str, int], ...]


def account(marks: Marks, spells: Spells, policy: Policy, since: float, until: float) -> Account:
    """What came of a replay. Spans that were over before the time that is looked at are left out."""
    entries = tuple(
        Entry(
            one.asked, one.state, one.began, one.ended, one.end,
            _next(one, spells.of.get(one.asked.uid, ()), policy.soak), tuple(one.whys),
        )
        for one in marks.spans
        if (one.ended is None or one.ended > since) and one.began <= until
    )  # fmt: skip
    marked = [one for one in entries if one.state == State.MARKED]
    whys = Counter(why for one in entries if one.state == State.WITHHELD for why in one.whys)
    most, at, seconds = _out(marked, since, until)
    return Account(
        since=since,
        until=until,
        entries=entries,
        checks=tuple(sorted(_checks(entries, marks.settled, since, until), key=_order)),
        nodes=len({one.asked.uid for one in marked}),
        seconds=seconds,
        most=most,
        at=at,
        reasons=tuple(sorted(whys.items(), key=lambda each: (-each[1], each[0]))),
    )


def _next(span: Span, spells: Sequence[Spell], soak: Soak) -> Next:
    asked = span.asked
    alike = [one for one in spells if (one.check, one.target) == (asked.check, asked.target)]
    # A mark may come a moment before the report of what it is for is accounted, never after its end.
    of = [one for one in alike if one.began <= span.began]
    if not of:
        return Next()
    spell = of[-1]
    ended = spell.ended if spell.ended is not None and spell.ended > span.began else None
    lasted = None if ended is None else ended - span.began
    again = ended is not None and any(
        0 <= one.began - ended <= soak.forget for one in alike if one is not spell
    )
    worse = False
    if asked.mark == Mark.SUSPECT:
        last = (span.ended or ended or float("inf")) + soak.forget
        worse = any(
            one.fatal is not None and span.began < one.fatal <= last
            for one in spells
            if one.resource == resource_of(asked.target)
        )
    brief = spell.over == Over.ITSELF and lasted is not None and lasted <= soak.first
    return Next(spell.over if ended is not None else Over.OPEN, lasted, brief, again, worse)


def _checks(
    entries: Iterable[Entry], settled: Mapping[str, int], since: float, until: float
) -> Iterator[OfCheck]:
    of: dict[tuple[str, Mark], list[Entry]] = defaultdict(list)
    for one in entries:
        of[one.asked.check, one.asked.mark].append(one)
    told = set()
    for (check, mark), found in of.items():
        marked = [one for one in found if one.state == State.MARKED]
        others = [one for one in found if one.state != State.MARKED and one.end != End.MARKED]
        yield OfCheck(
            check=check,
            mark=mark,
            marked=len(marked),
            nodes=len({one.asked.uid for one in marked}),
            seconds=sum(_within(one, since, until) for one in marked),
            brief=sum(one.next.brief for one in marked),
            again=sum(one.next.again for one in marked),
            worse=sum(one.next.worse for one in marked),
            withheld=sum(one.state == State.WITHHELD for one in found),
            observed=sum(one.state == State.DRY_RUN for one in found),
            spared=sum(one.next.brief and not one.next.again for one in others),
            missed=sum(one.next.worse or one.next.again for one in others),
            settled=0 if check in told else settled.get(check, 0),
        )
        told.add(check)


def _order(one: OfCheck) -> tuple[int, int, str, str]:
    return -one.marked, -one.withheld - one.observed, one.check, one.mark


def _within(one: Entry, since: float, until: float) -> float:
    return max(0.0, min(until if one.ended is None else one.ended, until) - max(one.began, since))


def _out(marked: Iterable[Entry], since: float, until: float) -> tuple[int, float, float]:
    """Nodes that were marked at a time at most, when first, and the seconds of all, each once at a time."""
    changes = []
    for one in marked:
        begins, lasts = max(one.began, since), _within(one, since, until)
        changes += [(begins, 1, one.asked.uid), (begins + lasts, -1, one.asked.uid)]
    standing: Counter[str] = Counter()
    most, at, total, before = 0, 0.0, 0.0, since
    for moment, by, uid in sorted(changes):
        total += len(standing) * (moment - before)
        before = moment
        standing[uid] += by
        if not standing[uid]:
            del standing[uid]
        if len(standing) > most:
            most, at = len(standing), moment
    return most, at, total
