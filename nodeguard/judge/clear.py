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

from nodeguard.judge.evaluate import evaluate_target
from nodeguard.judge.fold import FindingKey, attach_symptoms, fold_findings, root_causes
from nodeguard.judge.judge import signs_for_target
from nodeguard.judge.operator_clears import add_clears, clears_by_target, latest_clears
from nodeguard.judge.rules import Rules
from nodeguard.judge.state import JudgeState, OperatorClear, TargetState
from nodeguard.judge.verdict import dependencies
from nodeguard.model.finding import Finding, Health
from nodeguard.model.instant import Instant
from nodeguard.model.target import parent_target, target_kind, target_label

# Letters of a person's name that are remembered.
_NAME = 64

ClearRefusal = Literal["", "not-judged", "no-check", "no-finding", "other-part", "holds"]


class ClearRequest(Struct, frozen=True):
    """What a person wants cleared: a check's finding on a slot, as the verdict shows it.

    part: only while it sits there, whatever does where empty. by: who.
    """

    check: str
    target: str
    component: str = ""
    by: str = ""


class ClearResult(Struct, frozen=True):
    """What came of it.

    said: a sentence. cleared: the findings that are over, those that the cleared one was the cause of among
    them. holds: those of them that stand, as a reading says so now. why: why nothing was cleared, empty where
    something was.
    """

    message: str
    cleared: tuple[FindingKey, ...] = ()
    still_active: tuple[FindingKey, ...] = ()
    reason: ClearRefusal = ""


def clear(
    rules: Rules, state: JudgeState, wanted: ClearRequest, instant: Instant
) -> tuple[JudgeState, ClearResult]:
    """State and outcome. state: after a round of this boot; the same object where nothing was cleared."""
    checks = {one.id: one for one in rules.catalogue.checks}
    if wanted.check not in checks:
        return state, ClearResult(f"there is no check {wanted.check}", reason="no-check")
    if state.boot_id != instant.boot_id or not state.background.statuses:
        return state, ClearResult("nothing has been judged yet: try again in a minute", reason="not-judged")
    standing = {
        (check, slot): one.finding for slot, row in state.targets.items() for check, one in row.active.items()
    }
    causes = root_causes(standing, checks, dependencies(state.targets))
    named = _named(
        state.targets,
        standing,
        wanted,
        attach_symptoms(standing.values(), checks, dependencies(state.targets)),
    )
    what = f"{wanted.check} on {target_label(wanted.target)}"
    if not named:
        return state, ClearResult(_no_finding(state, wanted, what), reason="no-finding")
    meant = [key for key in named if wanted.component in {"", _occupant(state.targets, key[1])}]
    if not meant:
        sits = _occupant(state.targets, named[0][1]) or "a part that is not known"
        said = f"{what} is not cleared: {sits} sits there now, not {wanted.component}"
        return state, ClearResult(said, reason="other-part")
    keys = [*meant, *(key for key, cause in causes.items() if cause in meant and key not in meant)]
    after = apply_clears(state, wanted, keys, instant)
    fires = _firing(rules, after, {slot for _, slot in keys}, instant)
    holds = tuple(key for key in keys if key in fires)
    over = tuple(key for key in keys if key not in fires)
    if not set(over) & set(meant):
        ends = "the finding ends when a reading shows that it is over"
        said = f"{what} is not cleared: its condition holds now; {ends}"
        return state, ClearResult(said, still_active=holds, reason="holds")
    return apply_clears(state, wanted, over, instant), ClearResult(_said(what, over, holds), over, holds)


def apply_clears(
    state: JudgeState, wanted: ClearRequest, keys: Collection[FindingKey], instant: Instant
) -> JudgeState:
    """The state once a person's word on these findings, each of a slot that is there, counts."""
    by = wanted.by[:_NAME] or "a person"
    slots = dict(state.targets)
    words = []
    for check, slot in keys:
        row = slots[slot]
        active = {name: one for name, one in row.active.items() if name != check}
        slots[slot] = replace(row, active=active)
        # The log's clock runs a little apart from the machine's: what was heard is over in any case.
        at = max([instant.mono, *(event.last for event in row.events.values())])
        own = wanted.component if row.component is not None and row.component.id == wanted.component else ""
        words.append(OperatorClear(check, slot, own, at, by))
    return replace(state, slots=slots, cleared=add_clears(state.cleared, words))


def _named(
    slots: Mapping[str, TargetState],
    standing: Mapping[FindingKey, Finding],
    wanted: ClearRequest,
    shown: list[Finding],
) -> list[FindingKey]:
    """What stands of the named check on the named slot, or on those that the verdict folds into it."""
    key = (wanted.check, wanted.target)
    if key in standing:
        return [key]
    counts = Counter(map(target_kind, slots))
    rows = fold_findings((one for one in shown if one.health != Health.OK), counts)
    folds = (one.targets for one in rows if (one.check, one.target) == key)
    return [(wanted.check, slot) for row in folds for slot in row]


def _no_finding(state: JudgeState, wanted: ClearRequest, what: str) -> str:
    before = [one for one in state.cleared if (one.check, one.target) == (wanted.check, wanted.target)]
    return f"{what} does not stand" + (f": {before[-1].by} cleared it before" if before else "")


def _occupant(slots: Mapping[str, TargetState], slot: str) -> str:
    """What sits in a slot, or in what holds it; empty where that is not known."""
    for place in (slot, parent_target(slot)):
        row = slots.get(place)
        if row is not None and row.component is not None and row.component.id:
            return row.component.id
    return ""


def _firing(rules: Rules, state: JudgeState, slots: Collection[str], instant: Instant) -> set[FindingKey]:
    """What stands on some slots now."""
    people = clears_by_target(state.cleared)
    found: set[FindingKey] = set()
    for name in slots:
        slot = state.targets[name]
        words, signs = latest_clears(people, name, slot), signs_for_target(state.targets, name)
        judged = evaluate_target(rules, name, slot, signs, state.background, instant, words)
        found.update((one.check, name) for one in judged.findings)
    return found


def _said(what: str, over: Collection[FindingKey], holds: Collection[FindingKey]) -> str:
    more = f", and {len(over) - 1} more that it explained or stood for" if len(over) > 1 else ""
    still = ", ".join(f"{check} on {target_label(slot)}" for check, slot in holds)
    return f"{what} is cleared{more}" + (f"; what is read to hold now stands: {still}" if still else "")
