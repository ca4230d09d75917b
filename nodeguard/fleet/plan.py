"""The plan: what executors have to write, and the changes of incidents. Pure."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.incidents.events import IncidentEvent
from nodeguard.model.incident import Incident
from nodeguard.model.mark import DesiredNode, DeviceRule


class Plan(Struct, frozen=True):
    """The differences between what Nodes carry and what they should carry, and what to report.

    nodes: the desired state of Nodes that differ from it. rules: device rules to create or update;
    rules_gone: names of rules to delete. incidents: those that changed. events: Events to record once.
    released: marks that are released, by uid. transient_incidents: incidents that ended within their grace
    period; they go to the history only.
    """

    nodes: tuple[DesiredNode, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
    rules_gone: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    events: tuple[IncidentEvent, ...] = ()
    released: tuple[tuple[str, ReleasedMark], ...] = ()
    transient_incidents: tuple[Incident, ...] = ()
