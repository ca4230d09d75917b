"""Checks and their conditions, in the form of the compiled catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from nodeguard.model.finding import Action, Health
from nodeguard.model.signal import Scalar

Operator = Literal["is", "is_not", "in", "below", "at_most", "above", "at_least"]

# What a finding rests on: see Check.evidence.
EvidenceKind = Literal["fact", "measurement"]

# Signs that clear a finding of an event, besides a time window.
ClearSign = Literal[
    "reset", "driver-reload", "reboot", "component-replaced", "recovery-none", "retest", "operator"
]

# Events that are signs: they clear earlier events, and no condition counts them.
SIGN_EVENTS: dict[str, ClearSign] = {
    "gpu.reset": "reset",
    "nvswitch.reset": "reset",
    "driver.load": "driver-reload",
    "gpu.recovery_none": "recovery-none",
}


class Reference(Struct, frozen=True):
    """The reference that a reading is compared with, if it is not a constant.

    of: `signal`, another signal of the same target; `platform`, the value in the platform file; `peers`, the
    most frequent value of the same kind of target on this node; `inventory`, the best earlier value of this
    target. name: the signal, or the field of the platform file.
    """

    of: Literal["signal", "platform", "peers", "inventory"]
    name: str


class Compare(Struct, frozen=True, tag="compare"):
    """A comparison of a reading with a constant or a reference.

    by: minimum difference: `below` the reference by at least this much. evidence: False for a condition that
    only restricts where the check applies; it is not shown as evidence.
    """

    signal: str
    operator: Operator
    value: Scalar | tuple[Scalar, ...] | None = None
    than: Reference | None = None
    by: float = 0.0
    evidence: bool = True


class Increase(Struct, frozen=True, tag="increase"):
    """A counter that increased by at least `by` in the last `over` seconds. bits: see Signal.bits."""

    signal: str
    by: float
    over: float
    bits: int = 0


class EventOccurred(Struct, frozen=True, tag="happened"):
    """An event that occurred at least `times` in the last `over` seconds, or in this boot if over is 0.

    where: allowed values by field; only events that match every field count. until: an event of the same
    target that ends it, if all fields that both events have are equal. apart: seconds; events closer together
    count as one of the `times`, because one fault often logs several lines. unless_read: signals of the same
    target, and the source of each; where one of them was read, the reading decides and the event does not
    count.
    """

    event: str
    where: dict[str, tuple[Scalar, ...]] = {}
    times: int = 1
    over: float = 0.0
    until: str = ""
    apart: float = 0.0
    unless_read: dict[str, str] = {}


class AllOf(Struct, frozen=True, tag="all"):
    """A condition that holds if all of its conditions hold."""

    of: tuple[Condition, ...]


class AnyOf(Struct, frozen=True, tag="any"):
    """A condition that holds if at least one of its conditions holds."""

    of: tuple[Condition, ...]


class Sustained(Struct, frozen=True, tag="sustained"):
    """A condition that holds without interruption for `seconds`.

    seen_once: whether one evaluation is enough, with a note in the finding, if there is no time to wait.
    """

    condition: Condition
    seconds: float
    seen_once: bool = True


Condition = Compare | Increase | EventOccurred | AllOf | AnyOf | Sustained


class Check(Struct, frozen=True):
    """A check: when it fires, its severity and action, what clears it, and the topologies in which it votes.

    targets: kinds of target that it evaluates. cleared_by: what clears a finding of an event; a finding of a
    reading clears when the reading is good again. symptom_of: checks that explain this one, in order of
    preference; if one of them fires on a related target, this finding becomes its evidence. message, remedy:
    one sentence each; `{signal}` is replaced by a value. source: where the threshold or rule comes from.
    hardware: kinds of target; on a node without any of them the check is not applicable. applies_when: a
    condition on the target; if it is read and false, the check is not applicable. how: commands on the node
    that carry out the action, if those of the action do not; `{name}` is replaced, see model.recovery.
    evidence: `fact` for a bit that the hardware stores, or a version string: it is true on each node on which
    the check fires, however many these are.
    """

    id: str
    title: str
    family: str
    targets: tuple[str, ...]
    health: Health
    action: Action
    when: Condition
    message: str
    remedy: str
    description: str
    source: str
    cleared_by: tuple[ClearSign, ...] = ()
    topologies: tuple[str, ...] = ()
    symptom_of: tuple[str, ...] = ()
    runbook: str = ""
    hardware: tuple[str, ...] = ()
    applies_when: Compare | None = None
    how: tuple[str, ...] = ()
    evidence: EvidenceKind = "measurement"

    def leaves(self) -> Iterator[Compare | Increase | EventOccurred]:
        """Return the conditions of this check that read a signal."""
        return leaves(self.when)


def leaves(condition: Condition) -> Iterator[Compare | Increase | EventOccurred]:
    """Return the conditions that read a signal, left to right."""
    match condition:
        case Compare() | Increase() | EventOccurred():
            yield condition
        case Sustained():
            yield from leaves(condition.condition)
        case _:
            for child in condition.of:
                yield from leaves(child)
