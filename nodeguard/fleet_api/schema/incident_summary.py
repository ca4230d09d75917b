"""Schema of incidents in a status or in a list."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState, WriteState


class StateGroup(Struct, frozen=True):
    """Incidents of one check and health in the same state."""

    state: IncidentState
    reason: str
    """Why they are in this state, without the details of a node; empty where the state explains it."""
    mark: str | None
    """The mark; null for none."""
    nodes: int
    """Number of nodes, or of domains."""
    names: tuple[str, ...]
    """Names of the first few of them."""


class IncidentSummary(Struct, frozen=True):
    """An incident in a list."""

    name: str
    """Name of the incident."""
    node: str
    """Name of the node; empty for the incident of a domain, a check or a job."""
    resource: str
    """The failed target; `check/NAME` for a suppressed check, `job/NAME` for the start of a job."""
    hardware: Hardware | None
    """Names of the GPU, as last known; null for another target."""
    cause: str
    """The check that explains most symptoms."""
    health: Health
    state: IncidentState
    since: str
    """When it was first seen; in a row of several incidents, the oldest of them."""
    age: float
    scope: str
    """What is, or would be, kept from work."""
    summary: str
    """The problem, or why the mark is withheld."""
    acknowledged: str
    """The operator who acknowledged it; empty for none."""
    similar: int = 0
    """Number of incidents of the same check and health in this row; injected faults have their own row."""
    domain: str = ""
    """Path of the domain; empty for an incident that is not that of a domain."""
    until: str = ""
    """End of the grace period of a pending incident; empty for others."""
    seconds_left: float = 0.0
    """Seconds until then."""
    action: Action = Action.NONE
    """The action that the finding recommends; `none` while its check is suppressed on the node."""
    message: str = ""
    """The problem."""
    injected: bool = False
    """Whether an operator injected the fault."""
    write: WriteState | None = None
    """Why a requested mark, or its removal, is not on its object; null if it is."""
    mark: str | None = None
    """The most severe mark that is in effect for it; null for none."""
    guidance: Guidance | None = None
    """What people do about a degraded domain or a suppressed check; null for other incidents."""
    groups: tuple[StateGroup, ...] = ()
    """Nodes of all incidents in this row by state, those that still take work first; empty in a list of
    single incidents."""
    earlier: tuple[Health, ...] = ()
    """Of a row of one node: the healths of earlier rows of several nodes that have an incident of this node,
    too."""
    jobs: tuple[str, ...] = ()
    """The jobs on its nodes, as far as they were read; of a row of similar incidents, on the nodes of all."""
    jobs_omitted: int = 0
    """Number of further jobs, at least."""


class EndedFaultView(Struct, frozen=True):
    """The fault that ended last."""

    incident: str
    """Name of its incident."""
    cause: str
    node: str
    """Name of the node; empty for a domain."""
    domain: str
    """Path of the domain; empty for none."""
    resource: str
    """The failed target."""
    resolved_at: str
    """When it ended."""
    age: float
    """Seconds since then."""


class OmittedIncidents(Struct, frozen=True):
    """Incidents that are not recorded because of the limits of a node and of the fleet."""

    incidents: int = 0
    """Number of incidents."""
    nodes: int = 0
    """Number of their nodes."""
    worst_nodes: tuple[str, ...] = ()
    """Nodes with most of these incidents."""
