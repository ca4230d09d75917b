"""What is remembered of one node: on its Node, and on the rules of its devices. Pure."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.state.annotation_codec import encode_record
from nodeguard.fleet.state.budget_usage import NodeUsage
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.mark import (
    DEGRADED_TAINT,
    NO_SCHEDULE,
    STATE_ANNOTATION,
    Charge,
    DesiredNode,
    DeviceRule,
    Mark,
    MarkRecord,
    PastCharge,
)
from nodeguard.model.node import PREFIX, Device, Node, NodeCondition, Taint
from nodeguard.model.policy import MarkWrites, SoakPeriod


class NodeMarks(Struct, frozen=True):
    """Records of a node: its own, and those of devices that are marked."""

    node: MarkRecord = MarkRecord()
    devices: dict[Device, MarkRecord] = {}

    def record_of(self, device: Device | None) -> MarkRecord:
        """The record of the node, or of one of its devices."""
        return self.node if device is None else self.devices.get(device, MarkRecord())

    def with_record(self, device: Device | None, record: MarkRecord) -> NodeMarks:
        """With another record of the node or of a device."""
        if device is None:
            return replace(self, node=record)
        others = {one: kept for one, kept in self.devices.items() if one != device}
        return replace(self, devices={**others, device: record} if record.causes else others)

    @property
    def carriers(self) -> tuple[Device | None, ...]:
        """Where something may stand: the node (None) and its devices."""
        return (None, *self.devices)

    @property
    def is_marked(self) -> bool:
        """Whether anything stands."""
        return bool(self.node.causes or self.node.charge or self.node.degraded or self.devices)

    @property
    def is_quarantined(self) -> bool:
        """Whether the whole node is quarantined."""
        return _has(self.node, Mark.QUARANTINE)


_NOTHING = NodeMarks()


def node_usage(seat: NodePlacement, one: NodeMarks, other: NodeMarks | None = None) -> NodeUsage:
    """What a node is charged with: each kind of mark that it has, from the causes of its marks. other: what
    it is about to be, which counts beside what it is, as the write may fail.
    """
    if other is None and one == _NOTHING:
        return NodeUsage(seat, free=seat.cordoned_by_user)
    holdings = (one,) if other is None else (other, one)
    charges = {
        place: charge
        for holding in holdings
        for place in holding.carriers
        if (charge := holding.record_of(place).charge) is not None
    }
    past = {
        (old.check, old.at): old
        for each in (one, other)
        if each is not None
        for old in each.node.past_charges
    }
    for charge in charges.values():
        past.pop((charge.check, charge.at), None)
    return NodeUsage(
        seat,
        frozenset(
            place
            for holding in holdings
            for place in holding.carriers
            if _has(holding.record_of(place), Mark.QUARANTINE)
        ),
        any(_has(holding.node, Mark.SUSPECT) for holding in holdings),
        tuple(sorted(charges.values(), key=lambda charge: (charge.at, charge.check))),
        tuple(past.values()),
        seat.cordoned_by_user,
    )


def record_release(one: NodeMarks, charge: Charge, soak: SoakPeriod, now: float) -> NodeMarks:
    """With a charge in the node's past. now: seconds since the epoch."""
    recent = [old for old in one.node.past_charges if now - old.ended < soak.forget]
    # It was before, and what it stood on is not gone yet, as a rule that nobody has deleted so far.
    if any((old.check, old.at) == (charge.check, charge.at) for old in recent):
        return one
    times = max((old.occurrences for old in recent if old.check == charge.check), default=0)
    rest = (old for old in recent if old.check != charge.check or now - old.at < _WINDOW)
    past = (*rest, PastCharge(charge.check, charge.at, now, times + 1))[-_PAST:]
    return replace(one, node=replace(one.node, past_charges=past))


# Charges of one check that were given back are remembered one by one for as long as the window of a check's
# ledger may be; how many at most.
_WINDOW = 86_400.0
_PAST = 16


def with_cordon(node: Node, seen: MarkRecord, one: NodeMarks, writes: MarkWrites) -> NodeMarks:
    """What a node holds, with whether its cordon is nodeguard's. seen: what is remembered on it now.

    A cordon is set when a quarantine begins, where there is none yet. Where a person has taken it back, it is
    not set again.
    """
    quarantined, was = one.is_quarantined, _has(seen, Mark.QUARANTINE)
    ours = seen.cordoned and node.unschedulable and quarantined
    if writes.cordon and quarantined and not was and not node.unschedulable:
        ours = True
    return one if one.node.cordoned == ours else replace(one, node=replace(one.node, cordoned=ours))


def desired_node(
    seat: NodePlacement,
    node: Node,
    seen: MarkRecord,
    one: NodeMarks,
    writes: MarkWrites,
    condition: NodeCondition | None = None,
) -> DesiredNode:
    """What a Node is to carry, from what is to be remembered of it. seen: what is remembered on it now."""
    record = one.node
    marks = (mark for mark in Mark if any(mark == cause.mark for cause in record.causes))
    words = {mark.key: _word(record, mark) for mark in marks}
    if record.degraded:
        words[DEGRADED_TAINT] = min(record.degraded, key=lambda one: (one.since, one.domain)).topology
    taints = tuple(Taint(key, NO_SCHEDULE, word) for key, word in words.items()) if writes.taint else ()
    cordon = None
    if record.cordoned != seen.cordoned:
        cordon = True if record.cordoned else False if node.unschedulable else None
    return DesiredNode(
        uid=seat.uid,
        name=seat.name,
        taints=tuple(sorted((*taints, *seat.unknown_taints), key=lambda taint: (taint.key, taint.effect))),
        state=encode_record(record),
        cordon=cordon,
        condition=condition if writes.condition else None,
    )


def _has(record: MarkRecord, mark: Mark) -> bool:
    return any(cause.mark == mark for cause in record.causes)


def is_as_desired(node: Node, what: DesiredNode) -> bool:
    """Whether a Node carries already what it is to carry, but for its condition's words."""
    taints = sorted(
        (one for one in node.taints if one.key.startswith(PREFIX)),
        key=lambda taint: (taint.key, taint.effect),
    )
    told = what.condition is None or not what.condition.replaces(node.condition)
    return (
        tuple(taints) == what.taints
        and node.annotations.get(STATE_ANNOTATION, "") == what.state
        and (what.cordon is None or node.unschedulable == what.cordon)
        and told
    )


def device_rules(seat: NodePlacement, one: NodeMarks) -> tuple[DeviceRule, ...]:
    """The rules that a node's devices are to have."""
    return tuple(
        DeviceRule(
            name=rule_name(seat.uid, device),
            node=seat.name,
            uid=seat.uid,
            driver=device.driver,
            pool=device.pool,
            device=device.name,
            taint=Taint(Mark.QUARANTINE.key, NO_SCHEDULE, _word(record, Mark.QUARANTINE)),
            state=encode_record(record),
        )
        for device, record in one.devices.items()
    )


def rule_name(uid: str, device: Device) -> str:
    """Name of the rule of a device, the same whoever makes it."""
    words = "\0".join((uid, device.driver, device.pool, device.name))
    return f"nodeguard-{blake2b(words.encode(), digest_size=10).hexdigest()}"


def _word(record: MarkRecord, mark: Mark) -> str:
    """The class that a taint tells: the first, as its value is not to change with every reason."""
    return min((cause.since, cause.fault_class) for cause in record.causes if cause.mark == mark)[1]


def apply_desired(node: Node, desired: DesiredNode) -> Node:
    """The Node after a write of what it is to carry: what is not nodeguard's stays as it is, and so does the
    condition for other readings alone.
    """
    annotations = {key: text for key, text in node.annotations.items() if key != STATE_ANNOTATION}
    if desired.state:
        annotations[STATE_ANNOTATION] = desired.state
    wanted, condition = desired.condition, node.condition
    if wanted is not None and wanted.replaces(condition):
        condition = replace(wanted, message=wanted.short_message) if wanted.status else None
    foreign = tuple(one for one in node.taints if not one.key.startswith(PREFIX))
    return replace(
        node,
        taints=(*foreign, *desired.taints),
        annotations=annotations,
        unschedulable=node.unschedulable if desired.cordon is None else desired.cordon,
        condition=condition,
    )
