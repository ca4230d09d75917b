"""The evidence about nodes that the diagnosis asks for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Protocol

from msgspec import Struct

from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import DomainMembers


class JobStart(Struct, frozen=True):
    """A start of a job on a node, and its time in seconds of the monotonic clock."""

    job: str
    at: float


class FleetEvidence(Protocol):
    """Answers questions about nodes, also about those that may not vote.

    Times are seconds of the monotonic clock. NodeEvidence answers from the state of the fleet.
    """

    @property
    def members(self) -> DomainMembers:
        """Return all nodes by domain, also those without votes."""

    def is_confirmed(self, uid: str, check: str) -> bool:
        """Return whether another source confirms what a check found on a node."""

    def is_fact(self, check: str, uids: Collection[str]) -> bool:
        """Return whether what a check found on some nodes is a fact, which is true on each of them."""

    def is_marked(self, uid: str, check: str) -> bool:
        """Return whether a node has a mark of a check."""

    def shown_faults(
        self, uids: Iterable[str], degraded: DegradedDomain, votes: VoteIndex, now: float
    ) -> Mapping[str, float]:
        """Return when each of some nodes last showed the fault classes of a degraded domain, by uid."""

    def shown_checks(self, uid: str) -> Set[str]:
        """Return the checks that a node shows by its latest report, also with data that is not fresh."""

    def nodes_showing(self, check: str) -> Mapping[str, float]:
        """Return the nodes that show a check, with its onset, by uid."""

    def onsets(self, degraded: DegradedDomain, votes: VoteIndex) -> Mapping[str, float]:
        """Return since when each node of a degraded domain that reports shows its fault classes, by uid."""

    def firing(self, uid: str) -> Mapping[str, tuple[str, ...]]:
        """Return the checks that fire on a node now with fresh data, with the topologies of each."""

    def job_starts(self, uid: str) -> Iterable[JobStart]:
        """Return the starts of jobs on a node."""
