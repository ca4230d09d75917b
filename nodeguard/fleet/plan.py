"""The plan: what every Node and device is to carry, and what is not done, with its reason."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.model.incident import Incident
from nodeguard.model.mark import DesiredNode, DeviceRule


class Event(Struct, frozen=True):
    """Something that happened to a node, to be told where people look for it. warning: else it is normal.
    incident: the name of what it is told of; node and uid are empty where that is of many.
    """

    uid: str
    node: str
    reason: str
    message: str
    warning: bool = True
    incident: str = ""


class Plan(Struct, frozen=True):
    """What there is to be done.

    nodes: what each Node is to carry that does not yet. rules: device rules that are to be made or put right;
    rules_gone: names of those that are to go. incidents: those that have changed. events: what is told once.
    freed: what is released, by uid. brief: incidents that ended within their grace period, for the
    history alone.
    """

    nodes: tuple[DesiredNode, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
    rules_gone: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    events: tuple[Event, ...] = ()
    released: tuple[tuple[str, ReleasedMark], ...] = ()
    transient_incidents: tuple[Incident, ...] = ()
