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

# Seconds after a vote by which the jobs of its node are read. The job reader needs up to 103 s for 2,048
# nodes, and pauses for 60 s after an error. Until then, the vote may belong to the same job.
_READ_WITHIN = 180.0


class _JobVote(Struct, frozen=True):
    """A vote of a node that a start of a job may explain."""

    uid: str
    start: JobStart
    at: float


class _OtherVote(Struct, frozen=True):
    """A vote that no job start explains yet, with its time. seen: when it was first evaluated."""

    seen: float
    at: float


class JobStarts:
    """The bad starts of jobs, and the votes that they explain.

    A vote belongs to the start of a job if all of these are true: its check is of an event that passes
    (`job_start_checks` of the class), the job started on the node shortly before, the node has no other vote
    from that time or the window before, and its leaf has hardly any. Three nodes of a job are needed.
    """

    def __init__(self, votes: VoteIndex, evidence: NodeEvidence) -> None:
        self._votes = votes
        self._evidence = evidence
        self._explained: defaultdict[str, dict[str, _JobVote]] = defaultdict(dict)
        self._others: defaultdict[str, dict[str, _OtherVote]] = defaultdict(dict)
        self._is_waiting = False  # for the jobs of nodes with other votes
        self._starts: dict[str, BadJobStart] = {}  # also those that may still turn out to be a leaf's fault
        # Votes that count for their leaf, with their time, by uid.
        self._of_leaves: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._past: dict[str, JobStart] = {}  # the explained start behind one leaf only, by leaf
        # Starts of an earlier aggregator, by job: votes from the first to the last of theirs belong to them.
        self._recorded: dict[str, BadJobStart] = {}
        self._cleared: dict[str, float] = {}  # when operators cleared a job
        self.bad_starts: Mapping[str, BadJobStart] = {}

    @property
    def is_undecided(self) -> bool:
        """Return whether a bad start will be reported soon, unless other votes explain it."""
        return self._is_waiting or len(self._starts) > len(self.bad_starts)

    def open(self, start: BadJobStart) -> None:
        """Record a bad start from before this start of the aggregator, without its voters."""
        self._recorded[start.job] = start
        self._starts.setdefault(start.job, start)
        self.bad_starts = {**self.bad_starts, start.job: self._starts[start.job]}

    def end(self, start: BadJobStart, at: float) -> None:
        """Record that the incident of a bad start ended: its votes still count for no domain."""
        if not start.voters:
            self._recorded[start.job] = start
        self._cleared[start.job] = max(at, self._cleared.get(start.job, at))
        self._starts.pop(start.job, None)
        self.bad_starts = {job: other for job, other in self.bad_starts.items() if job != start.job}

    def explained(self, fault_class: str) -> Iterable[str]:
        """Return the nodes with votes for a fault class that the start of a job explains."""
        return self._explained.get(fault_class, {}).keys()

    def explaining_job(self, check: str, uid: str) -> str:
        """Return the job that explains, by its start, why a check fires on a node; empty for none."""
        for name in self._votes.classes_of(check):
            vote = self._explained.get(name, {}).get(uid)
            job_start_checks = self._votes.votes_by_class[name].vote_class.job_start_checks
            if vote is not None and matches_any(job_start_checks)(check):
                return vote.start.job
        return ""

    def update(self, degraded: Collection[DegradedDomain], now: float) -> bool:
        """Update which votes belong to starts of jobs. Returns whether that changed. degraded: domains; a job
        that starts on one later does not explain its votes.
        """
        self._forget(now)
        self._is_waiting = changed = False
        oldest = now - self._votes.rule.recovery.initial
        recent: dict[str, BadJobStart] = {}
        for name, votes in self._votes.votes_by_class.items():
            if not votes.vote_class.job_start_checks:
                continue
            own = [domain for domain in degraded if name in domain.fault_classes]
            explained = {vote.uid: vote for vote in self._explained_votes(votes, own, now)}
            self._explained[name] = explained
            changed |= votes.explain_by_jobs({uid: vote.at for uid, vote in explained.items()})
            latest = {episode[0].start.job: episode for episode in _episodes(explained.values())}
            for job, episode in latest.items():
                start = self._bad_start(job, name, episode, now)
                is_latest = job not in recent or start.last > recent[job].last
                if is_latest and start.last > max(oldest, self._cleared.get(job, -inf)):
                    recent[job] = start
        restored = {
            job: start
            for job, start in self._starts.items()
            if not start.voters and max(start.since, start.last) > oldest
        }
        self._starts = restored | recent
        self.bad_starts = {
            job: start
            for job, start in self._starts.items()
            if now - start.since >= self._votes.rule.grace_period
        }
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

    def _explained_votes(
        self, votes: FaultVotes, degraded: Collection[DegradedDomain], now: float
    ) -> Iterator[_JobVote]:
        """Yield the votes of a class that belong to a bad start. degraded: domains, for the class."""
        current = votes.current_voters(now)
        before = self._explained[votes.vote_class.name]
        # A vote belongs to its job until the node votes again, also if it was withdrawn or is too old to
        # count: its finding may last as long.
        oldest = now - self._votes.rule.recovery.reset_after
        possible = {
            uid: vote for uid, vote in before.items() if current.get(uid, vote.at) == vote.at > oldest
        }
        of_leaves, members = self._of_leaves[votes.vote_class.name], self._votes.members
        for vote in self._new_votes(votes, current):
            earlier = (domain for domain in degraded if domain.began < vote.start.at - _BEFORE)
            is_of_domain = any(vote.uid in members.nodes(domain.domain) for domain in earlier)
            if not (vote.uid in possible or of_leaves.get(vote.uid) == vote.at or is_of_domain):
                possible[vote.uid] = vote
        others_before = self._others[votes.vote_class.name]
        others = {
            uid: others_before.get(uid) or _OtherVote(now, current[uid])
            for uid in current.keys() - possible.keys()
        }
        self._others[votes.vote_class.name] = others
        by_leaf: dict[str, list[_OtherVote]] = defaultdict(list)
        for uid, other in others.items() if possible else ():
            for leaf in votes.lowest_domains(uid):
                by_leaf[leaf].append(other)
        job_votes: list[_JobVote] = []
        for vote in possible.values():
            concurrent = [
                [now - other.seen for other in by_leaf.get(leaf, ()) if other.at <= vote.start.at + _AFTER]
                for leaf in votes.lowest_domains(vote.uid)
            ]
            settled_count = max((sum(age >= _READ_WITHIN for age in ages) for ages in concurrent), default=0)
            other_count = max(map(len, concurrent), default=0)
            self._is_waiting |= other_count >= _OTHERS > settled_count
            if settled_count >= _OTHERS:
                of_leaves[vote.uid] = vote.at
            elif before.get(vote.uid) == vote or other_count < _OTHERS:
                job_votes.append(vote)
        for episode in _episodes(job_votes):
            was_explained = any(before.get(vote.uid) == vote for vote in episode)
            if self._is_bad_start(episode, votes, was_explained=was_explained):
                yield from episode

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

    def _is_bad_start(self, episode: list[_JobVote], votes: FaultVotes, *, was_explained: bool) -> bool:
        """Return whether enough nodes show a bad start, and no leaf explains it better: the only one with
        them, if a job has started badly there before. was_explained: whether it was a bad start before.
        """
        leaves = {leaf for vote in episode for leaf in votes.lowest_domains(vote.uid)}
        start = episode[0].start
        earlier = [leaf for leaf in leaves if leaf in self._past and not _is_same(self._past[leaf], start)]
        if not was_explained and (
            len(episode) < self._votes.rule.min_nodes or (earlier and len(leaves) == 1)
        ):
            return False
        for leaf in leaves.difference(earlier):
            self._past.pop(leaf, None)  # the first votes of a start on many leaves may be behind one
            if len(leaves) == 1:
                self._past[leaf] = start
        return True

    def _forget(self, now: float) -> None:
        """Forget starts and clears from long ago."""
        gone = now - self._votes.rule.recovery.reset_after
        self._past = {leaf: start for leaf, start in self._past.items() if start.at > gone}
        self._recorded = {job: start for job, start in self._recorded.items() if start.last > gone}
        self._cleared = {job: at for job, at in self._cleared.items() if at > gone}
        for name, votes in self._of_leaves.items():
            self._of_leaves[name] = {uid: at for uid, at in votes.items() if at > gone}


def _episodes(votes: Iterable[_JobVote]) -> Iterator[list[_JobVote]]:
    """Yield the votes of each start of a job, the latest start last: its nodes start within some minutes."""
    by_job: dict[str, list[_JobVote]] = defaultdict(list)
    for vote in votes:
        by_job[vote.start.job].append(vote)
    for job_votes in by_job.values():
        episode: list[_JobVote] = []
        for vote in sorted(job_votes, key=lambda vote: vote.start.at):
            if episode and not _is_same(vote.start, episode[0].start):
                yield episode
                episode = []
            episode.append(vote)
        yield episode


def _is_same(start: JobStart, other: JobStart) -> bool:
    """Return whether two starts are one: another rule, or a new aggregator, may find a start again."""
    return start.job == other.job and abs(start.at - other.at) <= _SPREAD
