"""Results of the diagnosis, with their messages and their recovery times. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil, inf

from msgspec import Struct

from nodeguard.fleet.state.topology.members import is_within
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy, FaultClass
from nodeguard.model.mark import DegradedMark

# The resource of an incident of a suppressed check, and of a job, begins with this.
CHECK = "check/"
JOB = "job/"


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


class VoteTally(Candidate, frozen=True):
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
    """The past diagnoses of domains and checks, by name: how many, and when the last one ended."""

    def __init__(self, rule: DiagnosisPolicy) -> None:
        self.rule = rule
        self._ended: dict[str, tuple[int, float]] = {}

    def record_end(self, name: str, times: int, at: float) -> None:
        """Record the number of recent diagnoses, and when the last of them ended, or later."""
        self._ended[name] = (times, at)

    def times(self, name: str, now: float) -> int:
        """Return how many recent diagnoses there were before."""
        times, ended = self._ended.get(name, (0, now))
        if now - ended < self.rule.recovery.reset_after:
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


def degraded_message(degraded: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """Return the evidence against a domain, with the counter-evidence."""
    if degraded.restored:
        return f"{degraded.domain} was degraded before this aggregator started; its nodes are evaluated again"
    phrase = _phrase(degraded.fault_classes, rule)
    voters, moved = len(degraded.voters), len(degraded.moved)
    if not voters + moved:
        return f"{degraded.domain}: the nodes that {phrase} no longer exist"
    share = f"{voters + moved} of {degraded.size + moved} nodes"
    message = f"{degraded.domain}: {share} {phrase}{_within(degraded.within)}"
    if not degraded.siblings:
        return message
    parent = degraded.domain.rpartition("/")[0]
    count = "other domain" if degraded.siblings == 1 else f"other {degraded.siblings} domains"
    if degraded.elsewhere:
        return f"{message}; so did {_nodes(degraded.elsewhere)} of the {count} of {parent}"
    return f"{message}; the {count} of {parent} did not"


def clearing_message(degraded: DegradedDomain, children: int, rule: DiagnosisPolicy) -> str:
    """Return the condition that clears a degraded domain. children: their number, 0 for a lowest domain."""
    shares = [item.share for item in rule.classes if item.name in degraded.fault_classes]
    least = min((fewest_nodes(share, degraded.size) for share in shares), default=2)
    clearing = format_duration(clearing_time(rule, degraded.times))
    parts = (
        f", or nodes in fewer than {fewest_children(children)} of its {children} parts," if children else ""
    )
    return f"over when fewer than {least} of its nodes{parts} show it for {clearing}"


def suppressed_message(check: SuppressedCheck) -> str:
    """Return why a check is suppressed."""
    if not check.nodes:
        return "it was suppressed before this aggregator started, and until it has no new findings for a time"
    nodes = _nodes(len(check.nodes))
    if check.domain:
        return f"it fires on {nodes}, nearly all of them with {check.domain}: see what changed there"
    if check.check == STALE_CHECK:
        cause = (
            "so did kubelets" if check.confirmed else "probably this aggregator or its network is the cause"
        )
        return f"the agents of {nodes} that no failure domain explains stopped reporting; {cause}"
    if check.limit < 1:
        return f"it fires on {nodes}, as it did before this aggregator started"
    chance = f"up to {check.limit - 1} within {format_duration(check.within)} may be chance"
    confirmation = (
        "other sources confirm it: the fault is real"
        if check.confirmed
        else "no other source confirms it: a false alarm"
    )
    return f"it fires on {nodes} that no failure domain explains; {chance}; {confirmation}"


def suppression_effect(check: SuppressedCheck, *, is_fact: bool = False) -> str:
    """Return what a suppression does to the marks of its check. is_fact: whether it finds facts."""
    if is_fact:
        return "it finds a fact, so that its nodes are marked within the budgets"
    if check.recovered:
        return "it marks nothing on the nodes on which it still fires since then; elsewhere it marks again"
    if check.retracts:
        return "it marks nothing new; its marks since it began to fire, without another source, are released"
    return "it marks nothing new; its marks stay, as too few nodes are affected to release them"


def bad_start_message(start: BadJobStart, rule: DiagnosisPolicy) -> str:
    """Return the evidence of a bad start of a job."""
    if not start.voters:
        return f"job {start.job} started badly before this aggregator started"
    after = format_duration(max(1.0, start.last - start.started))
    phrase = _phrase((start.fault_class,), rule)
    return f"job {start.job} started badly: {_nodes(len(start.voters))} {phrase} within {after} of its start"


def bad_start_effect(rule: DiagnosisPolicy) -> str:
    """Return what a bad start of a job does to the votes of its nodes."""
    quiet = format_duration(rule.recovery.initial)
    return f"no switch is suspected of them; over when the job has started without them for {quiet}"


def fault_class_named(rule: DiagnosisPolicy, names: Sequence[str]) -> FaultClass | None:
    """Return the fault class that explains a domain: the first of its names; None if the policy has none."""
    return next((item for item in rule.classes if item.name in names[:1]), None)


def _phrase(fault_classes: tuple[str, ...], rule: DiagnosisPolicy) -> str:
    """Return what the voting nodes of the first of some fault classes do."""
    fault_class = fault_class_named(rule, fault_classes)
    return fault_class.phrase if fault_class is not None else "show the same"


def _nodes(many: int) -> str:
    return f"{many} node{'' if many == 1 else 's'}"


def _within(seconds: float) -> str:
    return f" within {format_duration(seconds)}" if seconds >= 1.0 else " at once"
