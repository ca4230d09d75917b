"""Checks and their conditions, as the compiled catalogue holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from nodeguard.model.finding import Action, Health
from nodeguard.model.signal import Scalar

Operator = Literal["is", "is_not", "in", "below", "at_most", "above", "at_least"]

# What ends an event's finding besides a window; each is an event or a change that the judge can see.
ClearSign = Literal[
    "reset", "driver-reload", "reboot", "part-replaced", "recovery-none", "retest", "operator"
]


class Reference(Struct, frozen=True):
    """What a reading is held against, where that is no constant.

    of: `signal`, another signal of the same slot; `platform`, what the platform's file expects; `peers`, what
    most like it on this node read; `inventory`, the best that this slot has read before. name: the signal, or
    the platform's field.
    """

    of: Literal["signal", "platform", "peers", "inventory"]
    name: str


class Compare(Struct, frozen=True, tag="compare"):
    """A reading against a constant or a reference.

    by: how far the reference is moved first: `below` it by at least so much. evidence: whether it says what
    is wrong; one that only says where the check applies is not told of.
    """

    signal: str
    operator: Operator
    value: Scalar | tuple[Scalar, ...] | None = None
    than: Reference | None = None
    by: float = 0.0
    evidence: bool = True


class Increase(Struct, frozen=True, tag="increase"):
    """A counter that rose by at least `by` within the last `over` seconds. bits: see Signal.bits."""

    signal: str
    by: float
    over: float
    bits: int = 0


class EventOccurred(Struct, frozen=True, tag="happened"):
    """An event, at least `times` within the last `over` seconds, or in this boot where over is 0.

    where: allowed values by field; an event counts when each field named has one of its values. until: an
    event of the same slot that ends it, where no field that both have differs.
    """

    event: str
    where: dict[str, tuple[Scalar, ...]] = {}
    times: int = 1
    over: float = 0.0
    until: str = ""


class AllOf(Struct, frozen=True, tag="all"):
    """All of some conditions."""

    of: tuple[Condition, ...]


class AnyOf(Struct, frozen=True, tag="any"):
    """At least one of some conditions."""

    of: tuple[Condition, ...]


class Sustained(Struct, frozen=True, tag="sustained"):
    """A condition that has held without a break for so many seconds.

    seen_once: whether one look that finds it is enough to tell of it (with a note) where there was no time to
    wait.
    """

    condition: Condition
    seconds: float
    seen_once: bool = True


Condition = Compare | Increase | EventOccurred | AllOf | AnyOf | Sustained


class Check(Struct, frozen=True):
    """A rule: when it fires, how bad that is, what to do, what clears it, and which views it may vote in.

    targets: kinds of slot that it judges. clears: what ends it, for a check that hears of events; a check of
    readings ends when the reading is good again. symptom_of: checks whose cause explains this one, the first
    before the others; where one of them fires on a slot that may show here, this one becomes its evidence.
    message, remedy: one sentence each; `{signal}` stands for a value. basis: where the threshold or rule
    comes from. hardware: kinds of slot; where a node has none of them, silence about them means nothing.
    applies: what a slot has to be; where that is read and does not hold, the check is not applicable.
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
    explanation: str
    source: str
    clears: tuple[ClearSign, ...] = ()
    topologies: tuple[str, ...] = ()
    symptom_of: tuple[str, ...] = ()
    runbook: str = ""
    hardware: tuple[str, ...] = ()
    applies_when: Compare | None = None

    def leaves(self) -> Iterator[Compare | Increase | EventOccurred]:
        """The conditions of this check that look at a signal themselves."""
        return leaves(self.when)


def leaves(condition: Condition) -> Iterator[Compare | Increase | EventOccurred]:
    """The conditions that look at a signal themselves, left to right."""
    match condition:
        case Compare() | Increase() | EventOccurred():
            yield condition
        case Sustained():
            yield from leaves(condition.condition)
        case _:
            for part in condition.of:
                yield from leaves(part)
