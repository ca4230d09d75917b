"""Bad starts of jobs: many nodes of one job lose a link for a short time while it starts. Pure.

Such votes are the job's, and count for no domain: a gang on adjacent nodes would look like their switch.
docs/concepts/how-the-diagnosis-works.md has the rule. Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct

from nodeguard.fleet.diagnosis.node_evidence import JobStart, NodeEvidence
from nodeguard.fleet.diagnosis.results import BadJobStart, DegradedDomain
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.policy_rules import matches_any

# Seconds before and after a start within which a vote may belong to it: the clocks of the API server and of
# this machine may differ, and a gang of thousands of GPUs needs minutes to connect all of them.
_BEFORE, _AFTER = 60.0, 300.0

# Seconds by which the onset of a finding may differ in two reports, and from a recorded time.
_TOLERANCE = 2.0

# Seconds between the first and the last node of one start of a job.
_SPREAD = 600.0

# So many nodes of a leaf with other votes show that the leaf itself has a fault.
_OTHERS = 2


class _JobVote(Struct, frozen=True):
    """A vote of a node that a start of a job may explain."""

    uid: str
    start: JobStart
    at: float


class JobStarts:
    """The bad starts of jobs, by job, and the votes that they explain.

    A vote belongs to the start of a job if all of these are true: its check is of an event that passes
    (`job_start_checks` of the class), the job started on the node shortly before, the node has no other vote
    from that time or the window before, and its leaf has hardly any. Three nodes of a job are needed, at one
    of its starts.
    """

    def __init__(self, votes: VoteIndex, evidence: NodeEvidence) -> None:
        self._votes = votes
        self._evidence = evidence
        self._explained: defaultdict[str, dict[str, _JobVote]] = defaultdict(dict)
        self._starts: dict[str, BadJobStart] = {}  # also those that are not reported yet
        # Starts of an earlier aggregator, by job: votes from the first to the last of theirs belong to them.
        self._recorded: dict[str, BadJobStart] = {}
        self._cleared: dict[str, float] = {}  # when operators cleared a job
        self.bad_starts: dict[str, BadJobStart] = {}

    @property
    def is_undecided(self) -> bool:
        """Return whether a bad start will be reported soon, unless other votes explain it."""
        return len(self._starts) > len(self.bad_starts)

    def open(self, start: BadJobStart) -> None:
        """Record a bad start from before this start of the aggregator, without its voters."""
        self._recorded[start.job] = start
        self.bad_starts[start.job] = self._starts.setdefault(start.job, start)

    def end(self, start: BadJobStart, at: float) -> None:
        """Record that the incident of a bad start ended: its votes still count for no domain."""
        if not start.voters:
            self._recorded[start.job] = start
        self._cleared[start.job] = max(at, self._cleared.get(start.job, at))
        self._starts.pop(start.job, None)
        self.bad_starts.pop(start.job, None)

    def explained(self, fault_class: str) -> Iterable[str]:
        """Return the nodes with votes for a fault class that the start of a job explains."""
        return self._explained.get(fault_class, {}).keys()

    def explaining_job(self, check: str, uid: str) -> str:
        """Return the job that explains, by its start, why a check fires on a node; empty for none."""
        for name, votes in self._votes.classes_of(check).items():
            vote = self._explained.get(name, {}).get(uid)
            if vote is not None and matches_any(votes.vote_class.job_start_checks)(check):
                return vote.start.job
        return ""

    def explaining_jobs(self) -> dict[tuple[str, str], str]:
        """Return the jobs that explain votes, by fault class and uid."""
        return {
            (name, uid): vote.start.job for name, own in self._explained.items() for uid, vote in own.items()
        }

    def update(self, degraded: Collection[DegradedDomain], now: float) -> bool:
        """Update which votes belong to starts of jobs. Returns whether that changed. degraded: domains; a job
        that starts on one later does not explain its votes.
        """
        gone = now - self._votes.rule.recovery.reset_after
        self._recorded = {job: start for job, start in self._recorded.items() if start.last > gone}
        self._cleared = {job: at for job, at in self._cleared.items() if at > gone}
        changed = False
        oldest = now - self._votes.rule.recovery.initial
        recent: dict[str, BadJobStart] = {}
        for name, votes in self._votes.votes_by_class.items():
            if not votes.vote_class.job_start_checks:
                continue
            own = [domain for domain in degraded if name in domain.fault_classes]
            episodes = list(self._bad_episodes(votes, own, now))
            explained = self._explained[name] = {vote.uid: vote for episode in episodes for vote in episode}
            changed |= votes.explain_by_jobs({uid: vote.at for uid, vote in explained.items()})
            for episode in episodes:
                start = self._bad_start(episode[0].start.job, name, episode, now)
                if start.last > max(oldest, self._cleared.get(start.job, -inf)):
                    recent[start.job] = start  # of several starts, the latest comes last
        restored = {
            job: start
            for job, start in self._starts.items()
            if not start.voters and max(start.since, start.last) > oldest
        }
        self._starts, grace_period = restored | recent, self._votes.rule.grace_period
        self.bad_starts.clear()
        self.bad_starts |= {job: own for job, own in self._starts.items() if now - own.since >= grace_period}
        return changed

    def _bad_start(self, job: str, fault_class: str, votes: list[_JobVote], now: float) -> BadJobStart:
        """Return the bad start of a job, from the votes that its latest start explains."""
        before = self._starts.get(job)
        times = [vote.at for vote in votes]
        if before is not None:
            # Also of an earlier start: a new aggregator knows only the latest starts of a job.
            times += before.began, before.last
        return BadJobStart(
            job=job,
            fault_class=fault_class,
            since=now if before is None else before.since,
            started=votes[0].start.at,
            began=min(times),
            last=max(times),
            voters=tuple(sorted(vote.uid for vote in votes)),
        )

    def _bad_episodes(
        self, votes: FaultVotes, degraded: Collection[DegradedDomain], now: float
    ) -> Iterator[list[_JobVote]]:
        """Yield the votes of a class that belong to a bad start, for each start. degraded: domains, for the
        class.
        """
        current, members = votes.current_voters(now), self._votes.members
        before = self._explained[votes.vote_class.name]
        # A vote belongs to its job until the node votes again, also if it was withdrawn or is too old to
        # count: its finding may last as long.
        oldest = now - self._votes.rule.recovery.reset_after
        earlier = {uid: vote for uid, vote in before.items() if current.get(uid, vote.at) == vote.at > oldest}
        new: dict[str, _JobVote] = {}
        for vote in self._new_votes(votes, current):
            domains = (domain.domain for domain in degraded if domain.began < vote.start.at - _BEFORE)
            if vote.uid not in earlier and not any(vote.uid in members.nodes(path) for path in domains):
                new[vote.uid] = vote

        def is_of_leaf(vote: _JobVote) -> bool:
            since = vote.start.at - votes.longest_window
            others = (
                [at for uid, at in votes.latest_in(leaf).items() if uid not in earlier and uid not in new]
                for leaf in votes.lowest_domains(vote.uid)
            )
            return any(sum(at >= since for at in times) >= _OTHERS for times in others)

        of_jobs = [vote for vote in new.values() if not is_of_leaf(vote)]
        # Each vote at a later start of a job belongs to it, once one of its starts was bad.
        bad = {vote.start.job for vote in earlier.values()}
        for episode in _episodes([*earlier.values(), *of_jobs]):
            if episode[0].start.job in bad or len(episode) >= self._votes.rule.min_nodes:
                yield episode

    def _new_votes(self, votes: FaultVotes, current: Mapping[str, float]) -> Iterator[_JobVote]:
        """Yield the latest votes of nodes that a start of a job on the node may explain."""
        may_be_of_job = matches_any(votes.vote_class.job_start_checks)
        onsets: dict[str, float] = {}
        others = list[Mapping[str, float]]()
        for check, firings in self._votes.firings_by_check(votes.vote_class.name):
            if may_be_of_job(check):
                onsets |= {uid: at for uid, at in firings.latest.items() if at > onsets.get(uid, -inf)}
            else:
                others.append(firings.latest)
        # Starts, with the first and the last time of votes that they may explain.
        recorded = [
            (JobStart(start.job, start.began), start.began - _TOLERANCE, start.last + _TOLERANCE)
            for start in self._recorded.values()
        ]
        for uid, at in onsets.items():
            if current.get(uid) != at:
                continue
            starts = [
                (start, start.at - _BEFORE, start.at + _AFTER) for start in self._evidence.job_starts(uid)
            ]
            for start, first, last in starts + recorded:
                earliest = start.at - votes.longest_window
                if (
                    first <= at <= last
                    and not any(earliest <= other.get(uid, -inf) for other in others)
                    and not any(earliest <= onset < first for onset in votes.onsets(uid))
                ):
                    yield _JobVote(uid, start, at)
                    break


def _episodes(votes: Iterable[_JobVote]) -> Iterator[list[_JobVote]]:
    """Yield the votes of each start of a job, the latest start last: its nodes start within some minutes."""
    by_job: dict[str, list[_JobVote]] = defaultdict(list)
    for vote in votes:
        by_job[vote.start.job].append(vote)
    for job_votes in by_job.values():
        episode: list[_JobVote] = []
        for vote in sorted(job_votes, key=lambda vote: vote.start.at):
            # Another rule, or a new aggregator, may find a start again.
            if episode and vote.start.at - episode[0].start.at > _SPREAD:
                yield episode
                episode = []
            episode.append(vote)
        yield episode
