"""The record of a Lease: its holder, under which epoch, and when it was renewed."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct, field

from nodeguard.kube.errors import decoded
from nodeguard.kube.objects import TypedObject
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.json_decoder import JsonDecoder

# Seconds without a renewal after which another aggregator may take the lease.
LEASE_SECONDS = 15

# The API stores the number of transitions in 32 bits; this leaves some for the future.
MAX_EPOCH = 2**30


class LeaseSpec(Struct):
    """The spec of a Lease. transitions: the epoch."""

    holder: str = field(name="holderIdentity", default="")
    duration: int = field(name="leaseDurationSeconds", default=LEASE_SECONDS)
    transitions: int = field(name="leaseTransitions", default=0)
    acquired: str | None = field(name="acquireTime", default=None)
    renewed: str | None = field(name="renewTime", default=None)


class LeaseRecord(TypedObject):
    """A Lease object; only the fields that nodeguard reads."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)


_DECODER = JsonDecoder(LeaseRecord)


def written_spec(holder: str, epoch: int, duration: int, *, is_new: bool) -> dict[str, str | int]:
    """Return the spec that a candidate writes now. is_new: whether a term begins."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec: dict[str, str | int] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "renewTime": now,
        "leaseTransitions": epoch,
    }
    return {**spec, "acquireTime": now} if is_new else spec


def leader_term(spec: LeaseSpec) -> tuple[float, float] | None:
    """Return from when until when the holder of a lease led; None if the lease does not have that."""
    acquired, renewed = parse_or_zero(spec.acquired or ""), parse_or_zero(spec.renewed or "")
    return (acquired, renewed) if 0.0 < acquired <= renewed else None


def decode_lease(body: bytes) -> LeaseRecord:
    """Return a Lease, without an epoch that no aggregator has written: the next one might not fit into it."""
    record = decoded(_DECODER.decode, body, "the Lease")
    if not 0 <= record.spec.transitions < MAX_EPOCH:
        record.spec.transitions = 0
    return record
