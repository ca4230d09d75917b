"""Results of the diagnosis: candidates, degraded domains and suppressed checks."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

# The resource of an incident of a suppressed check begins with this.
CHECK = "check/"


class Candidate(Struct, frozen=True):
    """A domain that may be degraded. window: seconds; voters: onset by uid."""

    fault_class: str
    domain: str
    window: float
    voters: Mapping[str, float]
    size: int

    @property
    def share(self) -> float:
        """Return the share of its nodes that vote."""
        return len(self.voters) / self.size


class DegradedDomain(Struct, frozen=True):
    """A degraded domain. Times in seconds of the monotonic clock.

    name: the path of its first diagnosis, which stays as it widens. since: when it was diagnosed; began: the
    first vote; within: seconds from then to the last. voters: uids. siblings: number of sibling domains;
    elsewhere: number of their nodes with the same fault. times: number of recent diagnoses. restored: whether
    only marks or incidents report it, from before the start.
    """

    name: str
    domain: str
    fault_classes: tuple[str, ...]
    since: float
    began: float
    voters: tuple[str, ...]
    size: int
    within: float = 0.0
    siblings: int = 0
    elsewhere: int = 0
    times: int = 1
    restored: bool = False

    @property
    def topology(self) -> str:
        """Return its topology."""
        return self.domain.partition("/")[0]


class VoteTally(Struct, frozen=True):
    """The votes in a domain for a fault class. window: seconds; voters: onset by uid.

    by_share, by_chance: minimum number of voters by the share of the class, and beyond chance. If either
    exceeds the number of nodes, so small a domain is never degraded for the class.
    """

    fault_class: str
    description: str
    window: float
    voters: Mapping[str, float]
    size: int
    by_share: int
    by_chance: int

    @property
    def required(self) -> int:
        """Return the minimum number of voters for a degraded domain."""
        return max(self.by_share, self.by_chance)


class SuppressedCheck(Struct, frozen=True):
    """A suppressed check. since: seconds of the monotonic clock.

    nodes: uids that nothing explains; limit: their maximum number within `within` seconds. confirmed: whether
    other sources confirm it on many of them. domain: the only version with the suppression, empty for all
    nodes.
    """

    check: str
    since: float
    nodes: tuple[str, ...]
    limit: int
    within: float
    confirmed: bool = False
    domain: str = ""
    times: int = 1
