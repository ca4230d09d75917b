"""Observations: the readings of one target by one source at one time."""

from __future__ import annotations

from math import inf
from typing import Literal

from msgspec import Struct

from nodeguard.model.hardware import Hardware
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE

# The source of signals that the derive package computes from the readings of other sources.
DERIVED = "derived"

Status = Literal["read", "absent", "failed", "hung", "lost", "detached"]

# The signal of the last record of the kernel log that was read.
LOG_POSITION = "kmsg.sequence"

# Statuses of a target that exists and could not be read.
UNREADABLE = frozenset({"failed", "hung", "detached"})

# The reason for signals of detached GPUs: an operator asked the agent not to read them.
DETACHED = "detached"


class Component(Struct, frozen=True):
    """The hardware in a target, which can be replaced.

    id: its identity, a UUID, serial number or GUID; empty if unknown. hardware: of a GPU.
    """

    id: str
    model: str = ""
    hardware: Hardware | None = None


class Event(Struct, frozen=True):
    """An event that a source read, such as a line of the kernel log.

    signal: name of an event signal. at: seconds since boot (`Instant.mono`). text: original text, one or more
    lines. count: number of equal events that this one represents, if the source limited their rate.
    """

    signal: str
    at: float
    text: str = ""
    fields: dict[str, Scalar] = {}
    count: int = 1


class Observation(Struct, frozen=True):
    """The readings of one target by a source.

    status: `read`; `absent` (the target does not exist); `failed` (the read returned an error; see detail);
        `hung` (no answer within the deadline); `lost` (count records of a log were overwritten before they
        were read); `detached` (an operator detached the GPU; detail is DETACHED).
    signals: value by signal name. A signal that is neither here nor in unreadable does not apply to the
    target. unreadable: reason by signal name, for signals that apply and could not be read. epoch: with
    target and component, the key of a counter's baseline; a new epoch resets every baseline. unlisted: on the
    observation of `node`, the kinds of target that the source could not list completely,
        with the reason. A target of such a kind without an observation is unknown, not absent.
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
    """One read of one source.

    complete: whether the source reached all of its targets. A target without an observation is gone after a
    complete read, and unknown after an incomplete one. at: end of the read, seconds since boot. duration:
    seconds. valid_for: seconds after which the reading is stale without a newer one.
    """

    source: str
    at: float
    observations: tuple[Observation, ...]
    complete: bool = True
    duration: float = 0.0
    valid_for: float = inf

    @property
    def began(self) -> float:
        """Return the start of the read, seconds since boot."""
        return self.at - self.duration

    def unlisted(self, kind: str) -> str:
        """Return why the reading does not list every target of a kind; empty if it does."""
        if not self.complete:
            details = (
                observation.detail
                for observation in self.observations
                if observation.target == NODE and observation.status in UNREADABLE
            )
            return next(details, "") or f"the read of {self.source} did not finish"
        return next(
            (observation.unlisted[kind] for observation in self.observations if kind in observation.unlisted),
            "",
        )
