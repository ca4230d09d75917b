"""Marks of one node: the records on its Node and on the rules of its devices, and their annotation. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from nodeguard.fleet.state.budget_usage import SUSPECT, NodeUsage
from nodeguard.fleet.state.node_placement import FLEET, NodePlacement, is_own_taint, own_taint_keys
from nodeguard.fleet.state.unknown_marks import decode_unknown, encode_with_unknown, unknown_taint_keys
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.mark import (
    DEVICE_MARKS,
    FINDING_MARKS,
    NO_SCHEDULE,
    STATE_ANNOTATION,
    Charge,
    DesiredNode,
    DeviceRule,
    Mark,
    MarkRecord,
    NodeMarks,
    PastCharge,
)
from nodeguard.model.node import PREFIX, Device, Node, NodeCondition, Taint
from nodeguard.model.policy import MarkWrites, SoakPeriod

# Maximum bytes of an annotation that is decoded: all annotations of an object together may have 256 KiB.
MAX_READ_BYTES = 64 * 1024

# Maximum bytes of a record with its causes; the rest of a record is small.
MAX_CAUSES_BYTES = 32 * 1024

_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(MarkRecord)


def encode_record(record: MarkRecord) -> str:
    """Return a record as text; empty for an empty record."""
    if record.unknown:
        return encode_with_unknown(record)
    return "" if record == MarkRecord() else _ENCODER.encode(record).decode()


def decode_record(text: str) -> MarkRecord | None:
    """Return a record from its text; None if it is invalid, as after an edit by hand. A record that is
    returned has a charge only if it has a cause, and always then. Its causes are of kinds that findings
    request; what a newer version wrote is kept, see MarkRecord.unknown.
    """
    if not text:
        return MarkRecord()
    if len(text) > MAX_READ_BYTES:
        return None
    try:
        record = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if any(cause.mark not in FINDING_MARKS for cause in record.causes):
        return None
    if bool(record.causes) == (record.charge is not None):
        return record
    first = min(record.causes, key=lambda cause: cause.since, default=None)
    return replace(
        record, charge=Charge(first.check, first.mark, first.since, first.injected) if first else None
    )


def _decode(text: str) -> MarkRecord:
    try:
        record = _DECODER.decode(text)
    except msgspec.ValidationError:
        return decode_unknown(text)
    return decode_unknown(text) if record.unknown else record


def foreign_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints with nodeguard's prefix that the record of a Node does not explain: others set them.

    If the record is invalid, all are nodeguard's: an operator who removes all marks expects none to stay.
    """
    record = decode_record(node.annotations.get(STATE_ANNOTATION, ""))
    if record is None:
        return ()
    own_keys = own_taint_keys(record)
    return tuple(
        taint for taint in node.taints if taint.key.startswith(PREFIX) and not is_own_taint(taint, own_keys)
    )


_NOTHING = NodeMarks()


def charges_of(marks: NodeMarks) -> dict[tuple[Device | None, str], Charge]:
    """Return the charges of a node (None) and of its devices, by device and check. A pending write may
    replace the charge of a check by that of another: both count until it is observed.
    """
    charges = ((device, marks.record_of(device).charge) for device in marks.carriers)
    return {(device, charge.check): charge for device, charge in charges if charge is not None}


def node_usage(
    placement: NodePlacement,
    observed: NodeMarks,
    pending: NodeMarks | None = None,
    incident_checks: Container[str] = (),
) -> NodeUsage:
    """Return the usage of the budgets by a node, from the causes of its marks.

    pending: marks with a pending write. They count together with the observed marks, as the write may fail.
    incident_checks: checks with an incident of this node. A released charge of any other check does not
    count: the kubelet of a Node can write any annotation. An active one counts for its own check only.
    """
    if pending is None and observed == _NOTHING:
        return NodeUsage(placement, free=placement.cordoned_by_user)
    versions = (observed,) if pending is None else (pending, observed)
    charges = {key: charge for marks in versions for key, charge in charges_of(marks).items()}
    charged = {charge.check for charge in charges.values()}
    past_charges = (old for marks in versions for old in marks.node.past_charges)
    past = _latest_by_check(
        old for old in past_charges if old.check not in charged and old.check in incident_checks
    )
    return NodeUsage(
        placement,
        frozenset(
            device
            for marks in versions
            for device in marks.carriers
            if _is_charged(marks.record_of(device), FLEET)
        ),
        any(_is_charged(marks.node, SUSPECT) for marks in versions),
        tuple(sorted(charges.values(), key=lambda charge: (charge.at, charge.check))),
        frozenset(check for check in charged if check in incident_checks),
        past,
        placement.cordoned_by_user,
    )


def _is_charged(record: MarkRecord, budget: str) -> bool:
    """Return whether a mark of a record is charged to a budget of the policy."""
    return any(mark.kind.budget == budget for mark in record.marks)


def _latest_by_check(charges: Iterable[PastCharge]) -> tuple[PastCharge, ...]:
    """Return the latest released charge of each check."""
    latest: dict[str, PastCharge] = {}
    for charge in charges:
        if charge.check not in latest or charge.at > latest[charge.check].at:
            latest[charge.check] = charge
    return tuple(latest.values())


def record_release(
    marks: NodeMarks, charge: Charge, soak: SoakPeriod, now: float, age: RecordedAge
) -> NodeMarks:
    """Return the marks with a released charge among the past ones. That of an injected fault is forgotten:
    its check has found nothing. now: seconds since the epoch.
    """
    if charge.injected:
        return marks
    recent = [old for old in marks.node.past_charges if age(old.ended) < soak.forget]
    # It was released before, and its object still exists, such as a rule that is not deleted yet.
    if any((old.check, old.at) == (charge.check, charge.at) for old in recent):
        return marks
    occurrences = max((old.occurrences for old in recent if old.check == charge.check), default=0)
    rest = (old for old in recent if old.check != charge.check or age(old.at) < _WINDOW)
    past = (*rest, PastCharge(charge.check, charge.at, now, occurrences + 1))[-_PAST:]
    return replace(marks, node=replace(marks.node, past_charges=past))


# Released charges of one check are remembered for as long as the longest window of a check's budget; maximum
# number.
_WINDOW = 86_400.0
_PAST = 16


def with_cordon(node: Node, observed: MarkRecord, marks: NodeMarks, writes: MarkWrites) -> NodeMarks:
    """Return the marks of a node, with whether its cordon is nodeguard's. observed: its record now.

    A cordon is set when a mark with one begins, if there is none yet. If an operator has removed it, it is
    not set again.
    """
    cordons, did = (any(mark.kind.cordons for mark in record.marks) for record in (marks.node, observed))
    # A mark of an unknown kind may need the cordon.
    ours = observed.cordoned and node.unschedulable and (cordons or bool(unknown_taint_keys(marks.node)))
    if writes.cordon and cordons and not did and not node.unschedulable:
        ours = True
    return marks if marks.node.cordoned == ours else replace(marks, node=replace(marks.node, cordoned=ours))


def desired_node(
    placement: NodePlacement,
    node: Node,
    observed: MarkRecord,
    marks: NodeMarks,
    writes: MarkWrites,
    condition: NodeCondition | None = None,
) -> DesiredNode:
    """Return the desired state of a Node. observed: its record now."""
    record = marks.node
    taints = [_taint(record, mark) for mark in record.marks] if writes.taint else []
    kept_keys = unknown_taint_keys(record)
    taints += [taint for taint in node.taints if is_own_taint(taint, kept_keys)]
    cordon = None
    if record.cordoned != observed.cordoned:
        cordon = True if record.cordoned else False if node.unschedulable else None
    return DesiredNode(
        uid=placement.uid,
        name=placement.name,
        taints=tuple(
            sorted((*taints, *placement.unknown_taints), key=lambda taint: (taint.key, taint.effect))
        ),
        state=encode_record(record),
        cordon=cordon,
        condition=condition if writes.condition else None,
    )


def is_as_desired(node: Node, desired: DesiredNode) -> bool:
    """Return whether a Node is in its desired state, except the message of its condition."""
    taints = sorted(
        (taint for taint in node.taints if taint.key.startswith(PREFIX)),
        key=lambda taint: (taint.key, taint.effect),
    )
    has_condition = desired.condition is None or not desired.condition.replaces(node.condition)
    return (
        tuple(taints) == desired.taints
        and node.annotations.get(STATE_ANNOTATION, "") == desired.state
        and (desired.cordon is None or node.unschedulable == desired.cordon)
        and has_condition
    )


def device_rules(placement: NodePlacement, marks: NodeMarks) -> tuple[DeviceRule, ...]:
    """Return the desired rules of a node's devices."""
    return tuple(
        DeviceRule(
            name=rule_name(placement.uid, device),
            node=placement.name,
            uid=placement.uid,
            driver=device.driver,
            pool=device.pool,
            device=device.name,
            taint=_taint(record, mark),
            state=encode_record(record),
        )
        for device, record in marks.devices.items()
        for mark in DEVICE_MARKS
        if mark in record.marks
    )


def rule_name(uid: str, device: Device) -> str:
    """Return the name of the rule of a device, the same in every aggregator."""
    words = "\0".join((uid, device.driver, device.pool, device.name))
    return f"nodeguard-{blake2b(words.encode(), digest_size=10).hexdigest()}"


def _taint(record: MarkRecord, mark: Mark) -> Taint:
    """Return the taint of a mark. The first cause gives its value, so that no further one changes it."""
    causes = (cause for cause in record.all_causes if cause.mark == mark)
    return Taint(mark.key, NO_SCHEDULE, min((cause.since, cause.taint_value) for cause in causes)[1])


def apply_desired(node: Node, desired: DesiredNode) -> Node:
    """Return the Node after a write of its desired state: fields of others stay, and so does a condition that
    only has another message.
    """
    annotations = {key: text for key, text in node.annotations.items() if key != STATE_ANNOTATION}
    if desired.state:
        annotations[STATE_ANNOTATION] = desired.state
    wanted, condition = desired.condition, node.condition
    if wanted is not None and wanted.replaces(condition):
        condition = replace(wanted, message=wanted.short_message) if wanted.status else None
    foreign = tuple(taint for taint in node.taints if not taint.key.startswith(PREFIX))
    return replace(
        node,
        taints=(*foreign, *desired.taints),
        annotations=annotations,
        unschedulable=node.unschedulable if desired.cordon is None else desired.cordon,
        condition=condition,
    )
