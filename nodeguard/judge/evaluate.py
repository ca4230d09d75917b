"""All checks of one slot, evaluated. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.events import OLD, over
from nodeguard.judge.findings import ended, finding, stale, weathered
from nodeguard.judge.leaves import silence
from nodeguard.judge.outcome import FALSE, TRUE, UNKNOWN
from nodeguard.judge.rules import Rule, Rules
from nodeguard.judge.slots import merged
from nodeguard.judge.state import Background, Cleared, Judged, Occurrence, SlotState, Standing
from nodeguard.judge.view import Seen, Test, View
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding
from nodeguard.model.instant import Instant
from nodeguard.model.slot import NODE, kind

_NOTHING: dict[str, Cleared] = {}


def evaluated(
    rules: Rules,
    slot: str,
    state: SlotState,
    signs: Mapping[str, float],
    background: Background,
    instant: Instant,
    cleared: Mapping[str, Cleared] = _NOTHING,
) -> Judged:
    """Every check of the slot's kind, on what is remembered of the slot.

    signs: what may clear its events → when it was last seen, in seconds since boot. cleared: what people
    cleared of it, by check.
    """
    signals, unread = merged(state.sources)
    view = View(
        now=instant.mono,
        wall=instant.wall,
        first=state.first,
        one_look=background.one_look,
        signals=signals,
        unread=unread,
        memories=state.sources,
        counters=state.counters,
        events=state.events,
        signs=signs,
        held=state.held,
        expect=background.expect,
        statuses=background.statuses,
    )
    part = state.part.id if state.part else ""
    found: list[tuple[Check, Finding, list[Seen]]] = []
    kept: list[Finding] = []
    past: list[Finding] = []
    since: dict[str, float] = {}
    fine, silent = 0, None if state.events else silence(background.statuses)
    for at, rule in enumerate(rules.of[kind(slot)]):
        if rule.applies is not None and not _is_for(rule.applies, view):
            continue
        check, missing = rule.check, len(view.missing)
        person = cleared.get(check.id) if cleared else None
        view.signs = signs if person is None else {**signs, "operator": person.at}
        outcome = silent if silent is not None and rule.of_events else rule.test(view)
        if outcome == TRUE:
            since[check.id] = _since(view, state.active.get(check.id))
            one = finding(check, slot, part, view, since[check.id], rules.units)
            found.append((check, one, view.seen))
        elif outcome == FALSE:
            if slot != NODE or _tells(check, background.kinds):
                fine |= 1 << at
            if (state.events and rule.events) or person is not None:
                past.extend(_past(rule, slot, part, view, person))
        elif outcome == UNKNOWN and check.id in state.active:
            why = view.missing[-1][1] if len(view.missing) > missing else ""
            since[check.id] = state.active[check.id].since
            one = state.active[check.id].finding
            kept.append(stale(one, view.wall_of(since[check.id]), why))
        if view.seen:
            view.seen = []
        view.short = None
    findings = (*weathered(found, instant.mono), *kept)
    after = state
    if view.holding != state.held or findings or state.active:
        after = replace(
            state, held=view.holding, active={one.check: Standing(since[one.check], one) for one in findings}
        )
    return Judged(
        state=after,
        findings=findings,
        past=tuple(past),
        fine=fine,
        missing=tuple({(view.source_of(name), name, why) for name, why in view.missing}),
        pending={name: state.counters[name].value for name in view.pending},
        settled=after is state and not cleared and _rests(state, rules.spans[kind(slot)], instant.mono),
    )


def _since(view: View, active: Standing | None) -> float:
    """When what is found now began, in seconds since boot."""
    began = min((reason.since for reason in view.seen), default=view.now)
    return began if active is None else min(began, active.since)


def _past(rule: Rule, slot: str, part: str, view: View, person: Cleared | None) -> Iterable[Finding]:
    """What is to be told of a check's events that are over, or of what a person cleared of it.

    Of a person's word it is told for as long as of an event.
    """
    check, by = rule.check, person.by if person is not None else ""
    events = [
        one for leaf in rule.events for one in over(view.events, leaf, check.clears, view.signs, view.now, by)
    ]
    if events:
        yield ended(check, slot, part, view, events)
    elif person is not None and person.at > view.now - OLD:
        word = Occurrence("", "operator", person.at, person.at, 1, f"cleared by {by}", {}, ())
        yield ended(check, slot, part, view, [(word, word.text)])


def _is_for(applies: Test, view: View) -> bool:
    """Whether a check is for the slot, as far as that can be told."""
    missing = len(view.missing)
    outcome = applies(view)
    view.seen.clear()
    del view.missing[missing:]
    return outcome != FALSE


def _rests(state: SlotState, spans: Mapping[str, float], now: float) -> bool:
    """Whether nothing that is remembered of a slot means something else a moment later."""
    if state.events or state.held:
        return False
    return all(
        one.since < now and (not one.risen or one.risen[-1].at <= now - spans.get(name, 0.0))
        for name, one in state.counters.items()
    )


def _tells(check: Check, kinds: Collection[str]) -> bool:
    """Whether silence of a check on the node itself says anything.

    Not where the node only stands in for slots that a message does not name, nor where it has no such
    hardware.
    """
    return check.targets == (NODE,) and (not check.hardware or any(one in kinds for one in check.hardware))
