"""Schema of nodes as the objects of their cluster show them, without the reports of their agents."""

from __future__ import annotations

from nodeguard.fleet_api.schema.incident import IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeSummary, NodeView


class UnreportedSummary(NodeSummary, frozen=True):
    """A node in a list. `worst` and `message` are of its worst open incident, else of a mark. `withheld` and
    `would_mark` count incidents.
    """

    since: str = ""
    """Start of that incident or mark; empty for none."""
    age: float | None = None
    """Seconds since then."""


class UnreportedList(NodeList, frozen=True, kw_only=True):
    """Every node of the fleet, as UnreportedSummary."""

    not_read: str
    """What is not read, and which role gives the right to read it."""


class UnreportedNode(NodeView, frozen=True, kw_only=True):
    """A node in full."""

    not_read: str
    """What is not read, and which role gives the right to read it."""
    condition: str
    """The condition NodeguardHealthy of the Node, with its reason and message; empty for none."""
    open_incidents: tuple[IncidentView, ...]
    """Its unresolved incidents in full, worst first, and those of domains, checks and jobs that explain
    them."""
