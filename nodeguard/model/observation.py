"""Observations: what a source read of one slot at one instant."""

from __future__ import annotations

from math import inf
from typing import Literal

from msgspec import Struct

from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE

# The source of what derivation makes of all other sources' readings.
DERIVED = "derived"

Status = Literal["read", "absent", "failed", "hung", "lost", "released"]

# Statuses of a slot that is there and could not be read.
UNREADABLE = frozenset({"failed", "hung", "released"})

# Why a signal was not read that somebody asked to leave alone: not knowing it is meant.
DETACHED = "released"


class Component(Struct, frozen=True):
    """What occupies a slot: a thing with a serial number that can be carried away and replaced.

    id: the identity that counts, a UUID, serial or GUID; empty where it is unknown.
    """

    id: str
    model: str = ""
    serial: str = ""


class Event(Struct, frozen=True):
    """Something that happened at a moment.

    signal: name of an event signal. at: seconds since boot (`Instant.mono`). text: what the machine said, one
    line or more. count: how many like it this one stands for, where the source capped a flood.
    """

    signal: str
    at: float
    text: str = ""
    fields: dict[str, Scalar] = {}
    count: int = 1


class Observation(Struct, frozen=True):
    """What a source read of one slot.

    status: `read`, or how it could not be: `absent` (the thing is not there), `failed` (the reading was
        refused; detail says how), `hung` (no answer within the deadline), `lost` (count records of a log were
        overwritten unread), `released` (left alone on request; detail is RELEASED).
    signals: value by signal name. A signal that is neither here nor in unread does not apply to this slot.
    unread: reason by signal name, for signals that apply but could not be read. epoch: what a counter's
    baseline belongs to, besides slot and part; a new epoch starts every counter anew. unlisted: on the
    node's own observation, the kinds of slot that this source could not list completely, with
        the reason: a slot of such a kind that the round does not mention is unknown, not absent.
    """

    source: str
    target: str
    status: Status = "read"
    signals: dict[str, Scalar] = {}
    unreadable: dict[str, str] = {}
    events: tuple[Event, ...] = ()
    component: Component | None = None
    epoch: str = ""
    detail: str = ""
    count: int = 0
    unlisted: dict[str, str] = {}


class Reading(Struct, frozen=True):
    """One round of one source.

    observations: all that the round gave. complete: whether every slot of this source was reached; a slot
    that a complete round does not mention is gone, one that an incomplete round does not mention is unknown.
    at: seconds since boot when the round ended; took: how many seconds it took; valid: for how many seconds
    it tells of the machine as it is, where no next one comes.
    """

    source: str
    at: float
    observations: tuple[Observation, ...]
    complete: bool = True
    duration: float = 0.0
    valid_for: float = inf

    @property
    def began(self) -> float:
        """Seconds since boot when the round began."""
        return self.at - self.duration

    def unlisted(self, kind: str) -> str:
        """Return why the round does not name every slot of a kind; empty where it does."""
        if not self.complete:
            bad = (
                seen.detail for seen in self.observations if seen.target == NODE and seen.status in UNREADABLE
            )
            return next(bad, "") or f"the round of {self.source} was cut short"
        return next((seen.unlisted[kind] for seen in self.observations if kind in seen.unlisted), "")
