"""A person clears a finding. Pure.

    state, clearing = clear(rules, state, wanted, instant)

Events and counts until then count no more. A reading goes on counting: a finding whose condition holds now is
not cleared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.judge.cleared import by_slot, of_part, with_more
from nodeguard.judge.evaluate import evaluated
from nodeguard.judge.fold import Key, explained, folded, roots
from nodeguard.judge.judge import signs_of
from nodeguard.judge.rules import Rules
from nodeguard.judge.state import Cleared, JudgeState, SlotState
from nodeguard.judge.verdict import holders
from nodeguard.model.finding import Finding, Health
from nodeguard.model.instant import Instant
from nodeguard.model.slot import kind, label, parent

# Letters of a person's name that are remembered.
_NAME = 64

Why = Literal["", "not-judged", "no-check", "no-finding", "other-part", "holds"]


class Wanted(Struct, frozen=True):
    """What a person wants cleared: a check's finding on a slot, as the verdict shows it.

    part: only while it sits there, whatever does where empty. by: who.
    """

    check: str
    slot: str
    part: str = ""
    by: str = ""


class Clearing(Struct, frozen=True):
    """What came of it.

    said: a sentence. cleared: the findings that are over, those that the cleared one was the cause of among
    them. holds: those of them that stand, as a reading says so now. why: why nothing was cleared, empty where
    something was.
    """

    said: str
    cleared: tuple[Key, ...] = ()
    holds: tuple[Key, ...] = ()
    why: Why = ""


def clear(rules: Rules, state: JudgeState, wanted: Wanted, instant: Instant) -> tuple[JudgeState, Clearing]:
    """State and outcome. state: after a round of this boot; the same object where nothing was cleared."""
    checks = {one.id: one for one in rules.catalogue.checks}
    if wanted.check not in checks:
        return state, Clearing(f"there is no check {wanted.check}", why="no-check")
    if state.boot_id != instant.boot_id or not state.background.statuses:
        return state, Clearing("nothing has been judged yet: try again in a minute", why="not-judged")
    standing = {
        (check, slot): one.finding for slot, row in state.slots.items() for check, one in row.active.items()
    }
    causes = roots(standing, checks, holders(state.slots))
    named = _named(state.slots, standing, wanted, explained(standing.values(), checks, holders(state.slots)))
    what = f"{wanted.check} on {label(wanted.slot)}"
    if not named:
        return state, Clearing(_no_finding(state, wanted, what), why="no-finding")
    meant = [key for key in named if wanted.part in {"", _occupant(state.slots, key[1])}]
    if not meant:
        sits = _occupant(state.slots, named[0][1]) or "a part that is not known"
        said = f"{what} is not cleared: {sits} sits there now, not {wanted.part}"
        return state, Clearing(said, why="other-part")
    keys = [*meant, *(key for key, cause in causes.items() if cause in meant and key not in meant)]
    after = with_word(state, wanted, keys, instant)
    fires = _firing(rules, after, {slot for _, slot in keys}, instant)
    holds = tuple(key for key in keys if key in fires)
    over = tuple(key for key in keys if key not in fires)
    if not set(over) & set(meant):
        ends = "the finding ends when a reading shows that it is over"
        said = f"{what} is not cleared: its condition holds now; {ends}"
        return state, Clearing(said, holds=holds, why="holds")
    return with_word(state, wanted, over, instant), Clearing(_said(what, over, holds), over, holds)


def with_word(state: JudgeState, wanted: Wanted, keys: Collection[Key], instant: Instant) -> JudgeState:
    """The state once a person's word on these findings, each of a slot that is there, counts."""
    by = wanted.by[:_NAME] or "a person"
    slots = dict(state.slots)
    words = []
    for check, slot in keys:
        row = slots[slot]
        active = {name: one for name, one in row.active.items() if name != check}
        slots[slot] = replace(row, active=active)
        # The log's clock runs a little apart from the machine's: what was heard is over in any case.
        at = max([instant.mono, *(event.last for event in row.events.values())])
        own = wanted.part if row.part is not None and row.part.id == wanted.part else ""
        words.append(Cleared(check, slot, own, at, by))
    return replace(state, slots=slots, cleared=with_more(state.cleared, words))


def _named(
    slots: Mapping[str, SlotState], standing: Mapping[Key, Finding], wanted: Wanted, shown: list[Finding]
) -> list[Key]:
    """What stands of the named check on the named slot, or on those that the verdict folds into it."""
    key = (wanted.check, wanted.slot)
    if key in standing:
        return [key]
    counts = Counter(map(kind, slots))
    rows = folded((one for one in shown if one.health != Health.OK), counts)
    folds = (one.slots for one in rows if (one.check, one.target) == key)
    return [(wanted.check, slot) for row in folds for slot in row]


def _no_finding(state: JudgeState, wanted: Wanted, what: str) -> str:
    before = [one for one in state.cleared if (one.check, one.slot) == (wanted.check, wanted.slot)]
    return f"{what} does not stand" + (f": {before[-1].by} cleared it before" if before else "")


def _occupant(slots: Mapping[str, SlotState], slot: str) -> str:
    """What sits in a slot, or in what holds it; empty where that is not known."""
    for place in (slot, parent(slot)):
        row = slots.get(place)
        if row is not None and row.part is not None and row.part.id:
            return row.part.id
    return ""


def _firing(rules: Rules, state: JudgeState, slots: Collection[str], instant: Instant) -> set[Key]:
    """What stands on some slots now."""
    people = by_slot(state.cleared)
    found: set[Key] = set()
    for name in slots:
        slot = state.slots[name]
        words, signs = of_part(people, name, slot), signs_of(state.slots, name)
        judged = evaluated(rules, name, slot, signs, state.background, instant, words)
        found.update((one.check, name) for one in judged.findings)
    return found


def _said(what: str, over: Collection[Key], holds: Collection[Key]) -> str:
    more = f", and {len(over) - 1} more that it explained or stood for" if len(over) > 1 else ""
    still = ", ".join(f"{check} on {label(slot)}" for check, slot in holds)
    return f"{what} is cleared{more}" + (f"; what is read to hold now stands: {still}" if still else "")
