"""A backtest: the same steps under one policy, or under two, and what differs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.backtest.account import Account, Entry, account
from nodeguard.backtest.replay import Replay
from nodeguard.backtest.spells import Spells
from nodeguard.fleet.steps import Step
from nodeguard.model.incident import State
from nodeguard.model.policy import Policy


class Tested(Struct, frozen=True):
    """What was told, from one moment to another, and what each policy comes to. nodes: that reported;
    reports: transitions of theirs in all; recent: those since then; latest: when the last step was.
    """

    since: float
    until: float
    nodes: int
    reports: int
    recent: int
    latest: float
    accounts: tuple[Account, ...]


def tested(
    steps: Iterable[Step], policies: Sequence[Policy], checks: Iterable[str], since: float, until: float
) -> Tested:
    """What some steps come to under policies. checks: names of those in the catalogue. since: what was over
    before is left out. until: when whoever listened did so last; at least, all is held to be as it was told
    last for so long that it settles. Times in seconds since the epoch; since may be earlier than all steps.
    """
    known = tuple(checks)
    replays = [Replay(policy, known) for policy in policies]
    spells = Spells()
    first = latest = None
    recent = 0
    for step in steps:
        first = step.at if first is None else first
        latest = step.at
        before = spells.reports
        spells.take(step)
        recent += spells.reports - before if step.at >= since else 0
        for replay in replays:
            replay.take(step)
    end = max(until, (latest or 0.0) + max((_settled(one) for one in policies), default=0.0))
    for replay in replays:
        replay.until(end)
    begin = max(since, first or 0.0)
    return Tested(
        since=begin,
        until=end,
        nodes=len(spells.nodes),
        reports=spells.reports,
        recent=recent,
        latest=latest or 0.0,
        accounts=tuple(
            account(replay.marks, spells, policy, begin, end)
            for replay, policy in zip(replays, policies, strict=True)
        ),
    )


# Seconds after the start from which a fleet is planned for whatever is heard, and some to spare.
_START = 61.0


def _settled(policy: Policy) -> float:
    return max(policy.settle.quarantine, policy.settle.suspect, _START) + 1.0


class Difference(Struct, frozen=True):
    """Marks that stood under one policy alone, and pairs of those that stood under both: each of the first
    with the same of the second, at a time that they share.
    """

    first: tuple[Entry, ...]
    second: tuple[Entry, ...]
    both: tuple[tuple[Entry, Entry], ...]


def difference(first: Account, second: Account) -> Difference:
    """What two policies make of the same steps."""
    others: dict[tuple[str, str, str, str], list[Entry]] = defaultdict(list)
    for one in second.entries:
        if one.state == State.MARKED:
            others[_place(one)].append(one)
    alone, both, met = [], [], set[int]()
    for one in first.entries:
        if one.state != State.MARKED:
            continue
        other = next((each for each in others[_place(one)] if _overlap(one, each)), None)
        if other is None:
            alone.append(one)
        else:
            both.append((one, other))
    for one, _ in both:
        met.update(id(each) for each in others[_place(one)] if _overlap(one, each))
    rest = [each for found in others.values() for each in found if id(each) not in met]
    return Difference(tuple(alone), tuple(sorted(rest, key=lambda one: one.began)), tuple(both))


def _place(one: Entry) -> tuple[str, str, str, str]:
    return one.asked.uid, one.asked.check, one.asked.target, one.asked.mark


def _overlap(one: Entry, other: Entry) -> bool:
    ends, others_end = (float("inf") if each.ended is None else each.ended for each in (one, other))
    return one.began < others_end and other.began < ends
