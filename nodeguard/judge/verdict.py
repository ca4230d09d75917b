"""The verdict: what the checks of all slots say of the node. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nodeguard.judge.fold import attach_symptoms, fold_findings, sort_findings, worst_health
from nodeguard.judge.rules import Rules
from nodeguard.judge.state import SourceStatus, TargetResult, TargetState
from nodeguard.judge.target_update import merge_sources
from nodeguard.model.check import Check
from nodeguard.model.finding import (
    CounterTotal,
    DataStatus,
    Finding,
    Health,
    PassedFamily,
    PassingChecks,
    ReadFailure,
    Verdict,
    worst,
)
from nodeguard.model.observation import DERIVED, DETACHED
from nodeguard.model.target import NODE, pci_target, target_kind


def compute_verdict(
    rules: Rules, judged: Mapping[str, TargetResult], sources: Mapping[str, SourceStatus], platform: str
) -> Verdict:
    """The node's verdict. judged: by slot. platform: id of the matched platform, or empty."""
    counts = Counter(map(target_kind, judged))
    found = [one for slot in judged.values() for one in slot.findings]
    every = (
        attach_symptoms(
            found,
            {one.id: one for one in rules.catalogue.checks},
            dependencies({name: slot.state for name, slot in judged.items()}),
        )
        if found
        else []
    )
    findings = fold_findings((one for one in every if one.health != Health.OK), counts)
    past = (one for slot in judged.values() for one in slot.past_findings)
    noted = fold_findings((*(one for one in every if one.health == Health.OK), *past), counts)
    unread = _unread(judged, sources)
    known = [DataStatus.UNKNOWN] if unread else [DataStatus.FRESH]
    if any(one.status == "released" for one in sources.values()) or any(
        why == DETACHED for one in judged.values() for _, _, why in one.unreadable
    ):
        known.append(DataStatus.NOT_APPLICABLE)
    alike = _in_order(judged)
    return Verdict(
        health=worst_health(findings),
        data_status=worst(*known, *(one.data_status for one in findings)),
        findings=sort_findings(findings),
        informational=sort_findings(noted),
        read_failures=unread,
        passed=_fine(rules, alike),
        passing=_proven(rules, alike),
        counter_totals=tuple(
            CounterTotal(slot, name, value)
            for slot in sorted(name for name, one in judged.items() if one.pending)
            for name, value in sorted(judged[slot].pending.items())
            if value
        ),
        evaluated=sum(one.passed_rules.bit_count() + len(one.findings) for one in judged.values()),
        platform=platform,
    )


def dependencies(slots: Mapping[str, TargetState]) -> dict[str, str]:
    """What slots hang on besides their parent.

    A file system on its disk, a port on its function, and a function that lost its port on what it was when
    the log last spoke of it.
    """
    found: dict[str, str] = {}
    for slot, one in slots.items():
        signals = merge_sources(one.sources)[0]
        if "fs.disk" in signals:
            found[slot] = str(signals["fs.disk"])
        if "port.pci" in signals:
            found[slot] = pci_target(str(signals["port.pci"]))
        if target_kind(slot) == "port":
            named = (event.fields.get("pci") for event in one.events.values())
            found.update({pci_target(str(address)): slot for address in named if address})
    return found


def _unread(
    judged: Mapping[str, TargetResult], sources: Mapping[str, SourceStatus]
) -> tuple[ReadFailure, ...]:
    """What could not be read: whole sources first, then signals that checks wanted, those with one reason
    together. What could not be derived is named where nothing else explains it.
    """
    whole = [
        ReadFailure(name, (NODE,), name, state.detail)
        for name, state in sorted(sources.items())
        if state.status in {"failed", "hung"}
    ]
    reasons: dict[tuple[str, str], tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for slot, one in judged.items():
        for source, signal, why in one.unreadable:
            if source and why != DETACHED and sources.get(source, SourceStatus("read", 0)).status == "read":
                slots, signals = reasons[source, why]
                slots.add(slot)
                signals.add(signal)
    parts = [
        ReadFailure(source, tuple(sorted(slots)), ", ".join(sorted(signals)), why)
        for (source, why), (slots, signals) in sorted(reasons.items())
    ]
    read = [one for one in parts if one.source != DERIVED]
    return (*whole, *(read if whole or read else parts))


# What reads a slot of this kind itself: one that only others tell of is not fine for their silence.
_READ_BY = {"gpu": "nvml"}


_NO_FAMILY: frozenset[str] = frozenset()


def _sick(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(one.family for one in findings if one.health != Health.OK)


def _is_read(slot: str, one: TargetResult) -> bool:
    source = _READ_BY.get(target_kind(slot))
    memory = one.state.sources.get(source) if source else None
    return source is None or bool(memory and memory.signals)


class _Alike(NamedTuple):
    """What slots have in common that are told of together."""

    kind: str
    fine: int
    sick: frozenset[str]


def _in_order(judged: Mapping[str, TargetResult]) -> dict[_Alike, list[str]]:
    """Slots of which something is known to be in order, those alike together."""
    alike: dict[_Alike, list[str]] = defaultdict(list)
    for slot, one in judged.items():
        if one.passed_rules and _is_read(slot, one):
            sick = _sick(one.findings) if one.findings else _NO_FAMILY
            alike[_Alike(target_kind(slot), one.passed_rules, sick)].append(slot)
    return alike


def _checks(rules: Rules, what: _Alike) -> list[Check]:
    return [rule.check for at, rule in enumerate(rules.by_kind[what.kind]) if what.fine >> at & 1]


def _proven(rules: Rules, alike: Mapping[_Alike, list[str]]) -> tuple[PassingChecks, ...]:
    """Where each check found nothing wrong; of a family that found something else there, too."""
    return tuple(
        PassingChecks(tuple(check.id for check in _checks(rules, what)), tuple(sorted(slots)))
        for what, slots in sorted(alike.items(), key=lambda one: min(one[1]))
    )


def _fine(rules: Rules, alike: Mapping[_Alike, list[str]]) -> tuple[PassedFamily, ...]:
    """What is in order, a family in a line; a slot counts where nothing of the family was found on it."""
    checks: dict[str, set[str]] = defaultdict(set)
    slots: dict[str, Counter[str]] = defaultdict(Counter)
    for what, many in alike.items():
        fine = [check for check in _checks(rules, what) if check.family not in what.sick]
        for check in fine:
            checks[check.family].add(check.id)
        for family in {check.family for check in fine}:
            slots[family][what.kind] += len(many)
    return tuple(PassedFamily(family, len(checks[family]), dict(slots[family])) for family in sorted(checks))
