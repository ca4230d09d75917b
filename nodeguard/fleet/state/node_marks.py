"""Marks of one node: the text of their records, and what they use of the budgets. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec
from msgspec.structs import replace

from nodeguard.fleet.state.budget_usage import SUSPECT, NodeUsage
from nodeguard.fleet.state.node_placement import FLEET, NodePlacement
from nodeguard.fleet.state.unknown_marks import decode_unknown, encode_with_unknown
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.device import Device
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import FINDING_MARKS, Charge, MarkRecord, NodeMarks, PastCharge
from nodeguard.model.policy import SoakPeriod

# Maximum bytes of a text that is decoded: all annotations of a Kubernetes object together may have 256 KiB.
MAX_READ_BYTES = 64 * 1024

# Maximum bytes of a record with its causes; the rest of a record is small.
MAX_CAUSES_BYTES = 32 * 1024

_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = JsonDecoder(MarkRecord)


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
    except msgspec.DecodeError:
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
    count: a node can write any record of its own. An active one counts for its own check only.
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
