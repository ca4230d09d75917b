"""One cause, one finding: symptoms join their cause, and many slots with one cause fold into their parent.

Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.findings import merge_symptoms
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding, Health, worst
from nodeguard.model.target import NODE, parent_target, target_kind, target_label

# A check and the slot that it found something on.
FindingKey = tuple[str, str]

_PLURAL = {
    "nvlink": "NVLinks",
    "gpu": "GPUs",
    "port": "ports",
    "nvswitch": "NVSwitches",
    "pci": "PCI functions",
}

# Slots of the node itself fold only where they are enough for that to mean something: all GPUs, since each
# that is well can go on working, else more than half of them, since a node has ports that nobody uses. Until
# then, each of them is a thing of its own to be repaired.
_LEAST = 3

# Words of a message that may differ where the cause is the same: values, addresses and names of parts.
_NUMBERED = re.compile(r"\S*\d\S*")


def attach_symptoms(
    findings: Iterable[Finding], checks: Mapping[str, Check], holders: Mapping[str, str]
) -> list[Finding]:
    """Findings without those that another one causes; the cause, at the end of the chain, has their evidence.

    A cause that is less bad than what it would explain is a part of that instead: a node is held for what is
    worst of it.
    checks: by id. holders: slot → what it hangs on besides its parent. A cause stands on the same slot or one
    that holds it; that of a GPU or link also on any NVSwitch, that of a check of the node alone on any slot.
    """
    standing = {(one.check, one.target): one for one in findings}
    symptoms: dict[FindingKey, list[Finding]] = defaultdict(list)
    for key, cause in root_causes(standing, checks, holders).items():
        symptoms[cause].append(standing.pop(key))
    return [merge_symptoms(one, symptoms[key]) if key in symptoms else one for key, one in standing.items()]


def root_causes(
    standing: Mapping[FindingKey, Finding], checks: Mapping[str, Check], holders: Mapping[str, str]
) -> dict[FindingKey, FindingKey]:
    """For each finding that another one causes, the cause at the end of the chain; see explained."""
    causes: dict[FindingKey, FindingKey] = {}
    for key in sorted(standing, key=lambda key: (standing[key].health.rank, key)):
        cause = _cause(key, standing, checks[key[0]], holders)
        root = key if cause is None or key in causes else _root(cause, causes)
        if root == key:
            continue
        weaker = standing[root].health.rank < standing[key].health.rank
        causes[root if weaker else key] = key if weaker else root
    return {key: _root(key, causes) for key in causes}


def _cause(
    key: FindingKey, standing: Mapping[FindingKey, Finding], check: Check, holders: Mapping[str, str]
) -> FindingKey | None:
    """The finding that explains this one, None where none stands."""
    slot = key[1]
    for other in check.symptom_of:
        elsewhere = sorted(at for name, at in standing if name == other and _shared(at, slot, check))
        for at in (*_above(slot), holders.get(slot, slot), *elsewhere):
            if (other, at) in standing and (other, at) != key:
                return other, at
    return None


def _root(key: FindingKey, causes: Mapping[FindingKey, FindingKey]) -> FindingKey:
    while key in causes:
        key = causes[key]
    return key


def _shared(cause: str, slot: str, check: Check) -> bool:
    """Whether what is wrong with one slot may show on another that it does not hold.

    A finding of the node that stands for a slot which the log does not name may be any slot's, or none's.
    """
    if slot == NODE:
        return check.targets == (NODE,)
    return target_kind(cause) == "nvswitch" and target_kind(slot) in {"gpu", "nvlink"}


def _above(slot: str) -> Iterable[str]:
    yield slot
    while slot != NODE:
        slot = parent_target(slot)
        yield slot


def fold_findings(findings: Iterable[Finding], slots: Mapping[str, int]) -> list[Finding]:
    """Findings, those of one check on many slots of one parent as one finding of the parent that counts them.

    Only findings that say the same, but for numbers, fold. slots: how many slots of each kind the node has.
    Links of one GPU fold from two on; slots of the node fold where all or most of their kind show it.
    """
    links: list[Finding] = []
    rest: list[Finding] = []
    for one in findings:
        (links if target_kind(one.target) == "nvlink" else rest).append(one)
    return _across(rest + _within(links), slots)


def _within(links: list[Finding]) -> list[Finding]:
    groups: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for one in links:
        groups[one.check, _said(one), parent_target(one.target)].append(one)
    return [_one(group, target) if len(group) > 1 else group[0] for (*_, target), group in groups.items()]


def _across(findings: list[Finding], slots: Mapping[str, int]) -> list[Finding]:
    groups: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for one in findings:
        groups[one.check, _said(one), target_kind(one.target)].append(one)
    result: list[Finding] = []
    for (*_, what), group in groups.items():
        all_of = slots.get(what, 0)
        if what in _PLURAL and len(group) >= max(_LEAST, all_of if what == "gpu" else all_of // 2 + 1):
            result.append(_one(group, NODE))
        else:
            result.extend(group)
    return result


def _said(one: Finding) -> str:
    return _NUMBERED.sub("", one.message)


def _one(group: list[Finding], target: str) -> Finding:
    """Findings of one check as one of their parent.

    All slots are named, the first one's words speak for all.
    """
    first = min(group, key=lambda one: (-one.health.rank, one.target))
    slots = tuple(sorted((slot for one in group for slot in one.targets or (one.target,)), key=_natural))
    part = first.component if len({one.component for one in group}) == 1 else ""
    what = _PLURAL.get(target_kind(slots[0]), "slots")
    owner = f" of {target_label(target)}" if target != NODE else ""
    message = first.message.split(": ", 1)[1] if ": " in first.message and first.targets else first.message
    message = message.replace(target_label(first.target), "each")
    return replace(
        first,
        target=target,
        part=part,
        health=worst(*(one.health for one in group)),
        knowledge=worst(*(one.data_status for one in group)),
        action=worst(*(one.action for one in group)),
        since=min(one.since for one in group),
        message=f"{len(slots)} {what}{owner}: {message}",
        slots=slots,
    )


def _natural(slot: str) -> tuple[str, int]:
    head, _, tail = slot.rpartition("/")
    return (head, int(tail)) if tail.isdigit() else (slot, 0)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings worst first, then by slot and check."""
    return tuple(sorted(findings, key=lambda one: (-one.health.rank, one.target, one.check)))


def worst_health(findings: Iterable[Finding]) -> Health:
    """The worst health among findings, ok where there are none."""
    return max((one.health for one in findings), key=lambda health: health.rank, default=Health.OK)
