"""All checks of one slot, evaluated. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.judge.findings import finding, stale, weathered
from nodeguard.judge.outcome import FALSE, TRUE, UNKNOWN
from nodeguard.judge.rules import Rules
from nodeguard.judge.slots import merged
from nodeguard.judge.state import SlotState, SourceState
from nodeguard.judge.view import Seen, View
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import NODE, kind


class Judged(Struct, frozen=True):
    """What the checks said of a slot.

    findings: of the checks that fired, those of health `ok` among them. fine: checks that did not, as
    (family, check). missing: (source, signal, why) of what could not be read; pending: counters whose rise is
    not known yet, with their totals.
    """

    state: SlotState
    findings: tuple[Finding, ...]
    fine: tuple[tuple[str, str], ...]
    missing: tuple[tuple[str, str, str], ...]
    pending: dict[str, float]


class Look(Struct, frozen=True):
    """What all slots are held against in one round.

    expect: of the platform. kinds: kinds of the slots that the node has. one_look: whether there may be no
    later look.
    """

    instant: Instant
    sources: dict[str, SourceState]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    kinds: frozenset[str]
    one_look: bool


def evaluated(rules: Rules, slot: str, state: SlotState, signs: Mapping[str, float], look: Look) -> Judged:
    """Every check of the slot's kind, on what is remembered of the slot.

    signs: what may clear its events → when it was last seen, in seconds since boot.
    """
    signals, unread = merged(state.sources)
    view = View(
        now=look.instant.mono,
        wall=look.instant.wall,
        first=state.first,
        one_look=look.one_look,
        signals=signals,
        unread=unread,
        memories=state.sources,
        counters=state.counters,
        events=state.events,
        signs=signs,
        held=state.held,
        expect=look.expect,
        sources=look.sources,
    )
    part = state.part.id if state.part else ""
    found: list[tuple[Finding, list[Seen]]] = []
    kept: list[Finding] = []
    fine: list[tuple[str, str]] = []
    for rule in rules.of[kind(slot)]:
        check, missing = rule.check, len(view.missing)
        outcome = rule.test(view)
        if outcome == TRUE:
            found.append((finding(check, slot, part, view, state.active.get(check.id)), view.seen))
        elif outcome == FALSE and (slot != NODE or _applies(check, look.kinds)):
            fine.append((check.family, check.id))
        elif outcome == UNKNOWN and check.id in state.active:
            why = view.missing[-1][1] if len(view.missing) > missing else ""
            kept.append(stale(state.active[check.id], why))
        if view.seen:
            view.seen = []
        view.short = None
    findings = (*weathered(found, look.instant.mono), *kept)
    after = state
    if view.holding != state.held or findings or state.active:
        after = replace(state, held=view.holding, active={one.check: one for one in findings})
    return Judged(
        state=after,
        findings=findings,
        fine=tuple(fine),
        missing=tuple({(view.source_of(name), name, why) for name, why in view.missing}),
        pending={name: state.counters[name].value for name in view.pending},
    )


def _applies(check: Check, kinds: Collection[str]) -> bool:
    """Whether silence of a check on the node itself says anything.

    Not where the node only stands in for slots that a message does not name, nor where it has no such
    hardware.
    """
    return check.targets == (NODE,) and (not check.hardware or any(one in kinds for one in check.hardware))
