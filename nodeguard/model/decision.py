"""The decision about one node, in the terms of no executor: it names no taint, annotation or condition."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b

import msgspec
from msgspec import Struct

from nodeguard.model.device import Device
from nodeguard.model.finding import Action
from nodeguard.model.mark import DegradedMark, Mark, MarkCause, MarkRecord, NodeMarks

_ENCODER = msgspec.json.Encoder(order="deterministic")


class WantedMark(Struct, frozen=True):
    """One mark that a node or one of its devices is to have."""

    kind: Mark
    device: Device | None
    """The device that carries it; None for the whole node."""
    value: str
    """The fault class, or the topology of a degraded domain. The first cause gives it, so that no further
    one changes it."""
    causes: tuple[MarkCause | DegradedMark, ...]


class CauseFacts(Struct, frozen=True):
    """What a condition or a reason prints about one cause of a mark."""

    cause: MarkCause
    message: str = ""
    """Message of its finding; empty without a finding."""
    action: Action | None = None
    """Action of its finding; None if the node reports none now."""
    is_proven: bool = False
    """Whether a check has proved that the fault is over; its soak period runs."""


class HealthFacts(Struct, frozen=True):
    """What a condition or a reason prints about the marks of a node."""

    causes: tuple[CauseFacts, ...] = ()
    """Of the marks of the whole node, in the order of the record."""
    degraded: str = ""
    """Evidence of the first degraded domain of the record; empty for none."""
    owner: str = ""
    """The team that acts on this domain; empty if none is named."""


class NodeDecision(Struct, frozen=True, dict=True):
    """The marks that the policy allows for one node, all of them: an executor carries out the latest one.

    For example, to mark one node:

        cause = MarkCause(mark, "port-flap", "port/mlx5_0/1", "network", since=1_700_000_000.0)
        charge = Charge(cause.check, cause.mark, cause.since)
        NodeDecision("uid-1", "node-1", NodeMarks(MarkRecord((cause,), charge)))
    """

    node: str
    """Key of the node: its uid in Kubernetes, its name elsewhere."""
    name: str
    records: NodeMarks
    """The records to keep: all that a new aggregator needs to continue."""
    facts: HealthFacts = HealthFacts()

    @property
    def record(self) -> MarkRecord:
        """Return the record of the node itself."""
        return self.records.node

    @cached_property
    def marks(self) -> tuple[WantedMark, ...]:
        """Return the marks that its records explain: of the node, then of its devices; worst first."""
        return tuple(
            _wanted_mark(kind, device, record)
            for device in self.records.carriers
            for record in (self.records.record_of(device),)
            for kind in sorted(record.marks, key=lambda mark: mark.rank)
        )

    @cached_property
    def revision(self) -> str:
        """Return a digest of the records, and so of the marks: an executor that shows this revision has
        nothing to do. Facts do not change it.
        """
        devices = sorted(self.records.devices.items(), key=lambda item: _selector(item[0]))
        content = self.record, [(_selector(device), record) for device, record in devices]
        return blake2b(_ENCODER.encode(content), digest_size=10).hexdigest()


def _wanted_mark(kind: Mark, device: Device | None, record: MarkRecord) -> WantedMark:
    causes = tuple(cause for cause in record.all_causes if cause.mark == kind)
    return WantedMark(kind, device, min((cause.since, cause.taint_value) for cause in causes)[1], causes)


def _selector(device: Device) -> tuple[str, ...]:
    return device.driver, device.pool, device.name
