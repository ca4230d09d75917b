"""A world of one episode: a fleet, its usual faults, and one planted cause, all drawn at random.

The product sees the reports only; the evaluation and the oracle also see the truth. Times are seconds since
the start of the episode; nodes are named by their index. `draw.py` draws a world; `fleets.py`,
`background.py` and `plants.py` have the ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Path = str
"""A domain: `fabric/p1/leaf3`, the topology first, as the product names it."""


class Fleet(Struct, frozen=True):
    """The nodes and their domains: as they are, and as their labels name them."""

    size: int
    """Number of nodes."""
    true: Mapping[Path, tuple[int, ...]]
    """Members of each domain as the hardware is connected."""
    labelled: Mapping[Path, tuple[int, ...]]
    """Members of each domain as the labels name them, which the product sees: some nodes lack a label, have
    that of another domain, or a placeholder. A topology without labels has no domains here.
    """
    labels: tuple[Mapping[str, str], ...]
    """The labels of each node."""
    muted: frozenset[int]
    """Nodes without an agent: they never report."""

    def domains_at(self, topology: str, depth: int) -> list[Path]:
        """Return the true domains of a topology at a depth: 1 for the widest."""
        return [path for path in self.true if path.startswith(f"{topology}/") and path.count("/") == depth]


class Delay(Struct, frozen=True):
    """Seconds from an onset that an agent has confirmed until the report arrives: lognormal."""

    median: float
    sigma: float
    """Standard deviation of the logarithm."""
    lost: float
    """Share of the reports that are lost, and arrive with the next attempt after `retry` seconds."""
    retry: float


class FaultRate(Struct, frozen=True):
    """Usual rate of a symptom: its mean, and how much domains differ."""

    daily: float
    """Onsets of one node in a day, in the mean of the fleet."""
    topology: str
    """Of the domains that differ, at their finest level; empty for none."""
    shape: float
    """Of the Gamma distribution (mean 1) of the domains' factors: the smaller, the more they differ."""
    factors: Mapping[Path, float]
    """The drawn factor of each true domain of that level."""


class NodeFault(Struct, frozen=True, kw_only=True):
    """A fault of one node, or a false alarm there."""

    node: int
    symptom: str
    """A key of `symptoms.SYMPTOMS`."""
    onset: float
    end: float
    cause: str = ""
    """Name of the planted cause; empty for a usual fault."""
    is_real: bool = True
    """Whether work on the node suffers: not with a false alarm, or with a link lost once."""


class NodeChange(Struct, frozen=True):
    """A change of a Node by an operator. maintenance: its reason, empty for none."""

    at: float
    node: int
    unschedulable: bool
    maintenance: str = ""


class JobStart(Struct, frozen=True):
    """The start of a job on some nodes. recorded_at: by the clock of the API server, with its error."""

    job: str
    at: float
    recorded_at: float
    nodes: tuple[int, ...]


class VersionChange(Struct, frozen=True):
    """A node receives another version, as of a driver: `driver/580.95.06`."""

    at: float
    node: int
    version: Path


class Background(Struct, frozen=True, kw_only=True):
    """Everything of a world but the planted cause. Worlds of one seed, size and attempt share it."""

    seed: int
    size_class: int
    """A key of `draw.SIZE_CLASSES`."""
    attempt: int
    """Fleets that were drawn before because a kind did not fit the first one."""
    fleet: Fleet
    rates: Mapping[str, FaultRate]
    """Usual rates by symptom. The oracle may know them; the product learns them."""
    delay: Delay
    before: float
    """When the planted cause begins at the earliest: before it, the product learns the usual rates."""
    until: float
    """End of the episode."""
    faults: tuple[NodeFault, ...]
    changes: tuple[NodeChange, ...]
    """Cordons and maintenance, by time."""
    starts: tuple[JobStart, ...]
    agent_restarts: tuple[tuple[float, int], ...]
    """Time and node of each: the agent reports all its findings again."""
    aggregator_restart: float | None
    """Time of a restart of the aggregator; None for none."""


CauseKind = Literal["domain", "version", "job", "check", "observer"]


class Cause(Struct, frozen=True, kw_only=True):
    """A planted cause and the diagnosis that names it."""

    kind: CauseKind
    name: str
    """The true domain, the version, the job, or the check with false alarms; `agent-silent` for an observer
    that has lost its connections.
    """
    symptom: str
    """What its nodes show first."""
    members: tuple[int, ...]
    """Nodes that share the cause: the true members of the domain, the nodes with the version or the job."""
    start: float
    end: float
    """When it has ended on all nodes, at most the end of the episode."""
    share: float
    """Share of the members that show it."""
    spread: float
    """Seconds from its start within which onsets are distributed."""
    onsets: Literal["uniform", "exponential"] = "uniform"
    """Their distribution: uniform within `spread`, or exponential with the mean `spread`."""


class Plant(Struct, frozen=True, kw_only=True):
    """The planted causes of an episode: none, one, or several. faults: of their nodes."""

    kind: str
    """A key of `plants.KINDS`."""
    causes: tuple[Cause, ...] = ()
    faults: tuple[NodeFault, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    starts: tuple[JobStart, ...] = ()
    versions: tuple[VersionChange, ...] = ()
    aggregator_restart: float | None = None
    """Instead of the one of the background."""
    start: float = 0.0
    """When the first cause begins; for an episode without one, when it is first evaluated."""


class Vote(Struct, frozen=True):
    """A check that begins to fire on a node, as the aggregator learns it: for the product and the oracle."""

    node: int
    check: str
    symptom: str
    """The symptom with the check: the oracle has its rates by symptom."""
    onset: float
    """When the agent saw it begin; for `agent-silent`, the time of the last report."""
    reported: float
    """When the report arrives; for `agent-silent`, when the agent counts as stale."""
    cleared: float
    """When the check passes again; infinite if not within the episode."""


class World(Struct, frozen=True, kw_only=True):
    """A world. votes: by time of report, of all faults, also of nodes that are cordoned then."""

    background: Background
    plant: Plant
    votes: tuple[Vote, ...]
