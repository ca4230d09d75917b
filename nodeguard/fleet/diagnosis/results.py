"""Results of the diagnosis, with their recovery times. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil, inf

from msgspec import Struct

from nodeguard.fleet.state.topology.members import is_within
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.mark import DegradedMark

# The resource of an incident of a suppressed check, and of a job, begins with this.
CHECK = "check/"
JOB = "job/"


class Candidate(Struct, frozen=True):
    """A domain that may be degraded. window: seconds; voters: onset by uid. is_disputed: whether its parent,
    its parts, or one cause of the whole fleet explain the votes nearly as well.
    """

    fault_class: str
    domain: str
    window: float
    voters: Mapping[str, float]
    size: int
    is_disputed: bool = False

    @property
    def share(self) -> float:
        """Return the share of its nodes that vote."""
        return len(self.voters) / self.size


class DegradedDomain(Struct, frozen=True):
    """A degraded domain. Times in seconds of the monotonic clock.

    name: the path of its first diagnosis, which stays as it widens. since: when it was diagnosed; began: the
    first vote; within: seconds from then to the last. voters: uids of its nodes that voted and still exist;
    size: number of its nodes, with them. siblings: number of sibling domains;
    elsewhere: number of their nodes with the same fault. times: number of recent diagnoses. restored: whether
    only marks or incidents report it, from before the start. recovering_since: since when too few nodes show
    the fault; None while enough do, and in the first minutes. replaced: degraded domains that it replaced:
    its parts, or a wider one that recovered except for this part. moved: uids of nodes that got other labels
    since, and still show the fault.
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
    recovering_since: float | None = None
    replaced: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def topology(self) -> str:
        """Return its topology."""
        return self.domain.partition("/")[0]

    def has_mark(self, mark: DegradedMark) -> bool:
        """Return whether a mark is of this domain or of one that it replaced. Its name stays as it widens."""
        is_named = mark.name == self.name and is_within(mark.domain, self.domain)
        return is_named or mark.domain in (self.domain, *self.replaced)


class VoteTally(Candidate, frozen=True, kw_only=True):
    """The votes in a domain for a fault class. description: of the class.

    by_share, by_chance: minimum number of voters by the share of the class, and beyond chance. If either
    exceeds the number of nodes, so small a domain is never degraded for the class.
    """

    description: str
    by_share: int
    by_chance: int

    @property
    def required(self) -> int:
        """Return the minimum number of voters for a degraded domain."""
        return max(self.by_share, self.by_chance)


class SuppressedCheck(Struct, frozen=True):
    """A suppressed check. since, began: when it was suppressed, and the first onset of the episode, in
    seconds of the monotonic clock.

    nodes: uids that nothing explains; limit: their maximum number within `within` seconds. confirmed: whether
    other sources confirm it on many of them. domain: the only version with the suppression, empty for all
    nodes. retracts: whether so many nodes are affected that marks of this episode are released. confined_at:
    since when it stays suppressed only on nodes of the episode, as it fires on no new ones; None before.
    restored_size: number of these nodes, if only an incident from before the start reports them.
    recovering_since: since when it has begun to fire on few nodes; None in the first minutes, and after the
    episode.
    """

    check: str
    since: float
    began: float
    nodes: tuple[str, ...]
    limit: int
    within: float
    confirmed: bool = False
    domain: str = ""
    times: int = 1
    retracts: bool = False
    confined_at: float | None = None
    restored_size: int = 0
    recovering_since: float | None = None

    @property
    def recovered(self) -> bool:
        """Return whether the episode is over: the check is suppressed only on nodes of the episode."""
        return self.confined_at is not None

    @property
    def size(self) -> int:
        """Return the number of nodes of the episode."""
        return self.restored_size or len(self.nodes)


class BadJobStart(Struct, frozen=True):
    """A bad start of a job: many of its nodes lost a link for a short time. Times in seconds of the monotonic
    clock.

    since: when it was diagnosed; started: when the job last started on the first node; began, last: the first
    and the last vote of all starts since then. voters: uids, of the last start; none if only an incident
    reports it, from before this start of the aggregator.
    """

    job: str
    fault_class: str
    since: float
    started: float
    began: float
    last: float
    voters: tuple[str, ...] = ()


class Recurrence:
    """The past diagnoses of domains or checks, by name: how many, and when the last one ended."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[int, float]] = {}

    def record_end(self, name: str, times: int, at: float) -> None:
        """Record the number of recent diagnoses, and when the last of them ended, or later."""
        self._ended[name] = (times, at)

    def times(self, name: str, now: float, reset_after: float) -> int:
        """Return how many recent diagnoses there were before. reset_after: seconds for which they count."""
        times, ended = self._ended.get(name, (0, now))
        if now - ended < reset_after:
            return times
        del self._ended[name]
        return 0


# Seconds before the first vote within which a node's own fault still belongs to the degraded domain.
BEFORE_FIRST_VOTE = 600.0

# Seconds after the start by which all agents have reported; and after which a node without a report has none.
ALL_REPORTED = 60.0
NO_AGENT = 86_400.0


def recovering_since(since: float, now: float) -> float | None:
    """Return since when a diagnosis recovers: None in the first minutes, as that is often not the end."""
    return since if now - since >= _RECOVERING_AFTER else None


# Seconds without enough nodes that show a fault after which its diagnosis counts as recovering. That is
# recorded, so it must not change with every lost link.
_RECOVERING_AFTER = 300.0


def clearing_time(rule: DiagnosisPolicy, times: int) -> float:
    """Return the seconds for which a domain must show nothing to be cleared, for the number of diagnoses."""
    return float(min(rule.recovery.max, rule.recovery.initial * 2.0 ** min(times - 1, 30)))


def latest_times(*times_by_uid: Mapping[str, float]) -> dict[str, float]:
    """Return the latest time of each node in some mappings, by uid."""
    latest: dict[str, float] = {}
    for times in times_by_uid:
        latest |= {uid: at for uid, at in times.items() if at > latest.get(uid, -inf)}
    return latest


def nth_largest(number: int, values: Collection[float]) -> float:
    """Return the n-th largest of some values; minus infinity if there are fewer."""
    return sorted(values)[-number] if number <= len(values) else -inf


def fewest_nodes(share: float, size: int) -> int:
    """Return the minimum number of nodes that keep a domain degraded. share: of the fault class."""
    return max(2, ceil(share / 2 * size))


def most_children(children: int) -> int:
    """Return how many of the children of a domain make a fault one of the whole domain: more than half, and
    at least three if there are so many. Two of four or more that fail together explain all votes themselves.
    """
    return children // 2 + 1 if children > _FEW else max(2, children)


# A domain of so few children fails with all of them.
_FEW = 3


def fewest_children(children: int) -> int:
    """Return the minimum number of children with the fault that keep a parent domain degraded: half of those
    that make it degraded. The fault of a single child is that child's.
    """
    return max(2, ceil(most_children(children) / 2))
