"""What a diagnosis says: which domain is to blame, and which check is not to be believed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

# The resource of an incident of a suppressed check begins with this.
CHECK = "check/"


class Candidate(Struct, frozen=True):
    """A domain that may be to blame for a class of faults. window: seconds; voters: when each did, by uid."""

    fault_class: str
    domain: str
    window: float
    voters: Mapping[str, float]
    size: int

    @property
    def share(self) -> float:
        """Of its members that show it."""
        return len(self.voters) / self.size


class DegradedDomain(Struct, frozen=True):
    """A domain that is to blame. Times in seconds of the monotonic clock.

    name: the path that it was first blamed under, which stays as it widens. kinds: classes of faults that it
    shows. since: when it was blamed; began: the first vote; within: from then to the last. voters: uids.
    siblings: how many domains there are beside it, and elsewhere: on how many nodes of theirs the same was
    seen. times: how often it has been blamed lately. recalled: whether it is known from marks alone.
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
        """The view that it is of."""
        return self.domain.partition("/")[0]


class VoteTally(Struct, frozen=True):
    """What a domain shows of a class of faults now. window: seconds; voters: when each did, by uid.

    by_share, by_chance: how many of its nodes would have to, for it to be so large a part of them, and more
    than chance explains; where either is more than there are nodes, so small a domain is not blamed for it.
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
        """How many of its nodes would have to show it."""
        return max(self.by_share, self.by_chance)


class SuppressedCheck(Struct, frozen=True):
    """A check that is not acted upon. since: seconds of the monotonic clock.

    nodes: uids on which nothing explains it; limit: how many there may be within so many seconds. real:
    whether other sources bear it out on many of them. domain: the version on which alone it is held, empty
    for everywhere.
    """

    check: str
    since: float
    nodes: tuple[str, ...]
    limit: int
    within: float
    confirmed: bool = False
    domain: str = ""
    times: int = 1
