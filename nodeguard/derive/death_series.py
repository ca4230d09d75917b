"""A series of programs that met an Xid on one GPU: how many independent ones, and how likely by chance. Pure.

A fault of the GPU and a fault of programs look alike in one Xid. They differ in where the next ones happen:
programs with faults fail on any GPU that runs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, lgamma, log

from msgspec import Struct

_DAY = 86_400.0

# Series that chance may give on a node in a day, by the model below. Of these only the ones with PACE count:
# `bench/deaths.py` measures 0.02 of them in 1,000 node-days, and the target is 0.1.
ACCEPTED_RATE = 1e-3

# Seconds from one independent death to the next, at most, on average: a GPU that kills one process in three,
# of six an hour, takes half an hour.
PACE = 5400.0

# Faulty programs on a GPU in a day, before the node's own record: a gamma distribution over nodes. A node of
# eight GPUs has 0.13 Xids of applications a day on average (twenty times the interruptions by hardware, which
# Meta and Imbue publish as 2.3 to 6.5 in 1,000 node-days); nodes that many share for trials are assumed to
# have ten times as many, and to differ much: shape 1/2, mean 1.3 / 8.
PRIOR_SHAPE = 0.5
PRIOR_GPU_DAYS = PRIOR_SHAPE / (1.3 / 8)

# Jobs of one user that can be one program, started again after each failure: a Job of Kubernetes makes seven
# pods by default (backoffLimit 6).
RETRIES = 7

# Seconds that a series has at least, so that what one cause ends at once is no series.
_SHORTEST = 3600.0

# A program that is fit for longer work than a failed process of it: its other processes, of the same parent,
# ran on so many other GPUs twice as long. Processes that only end together with the failed one have run for
# the same time, and in one container different programs may run on a few GPUs.
_SIBLINGS, _LONGER = 3, 2.0


class Death(Struct, frozen=True, array_like=True):
    """A process with an Xid of an application. user, job and parent are opaque keys."""

    pid: int

    at: float
    """Seconds since boot."""

    ran: float
    """Seconds from the start of the process to its death."""

    user: str
    job: str
    parent: str

    again: bool
    """Whether another process of the job met an Xid before, on any GPU."""

    removed: bool
    """Whether its only Xid is 45, which a process that is killed has, too."""

    clean: float
    """Seconds that the other GPUs had run work by then, see Series.clean."""


class Series(Struct, frozen=True):
    """The deaths of one GPU since the last one of another GPU of the node."""

    deaths: Sequence[Death]
    """Oldest first."""

    earlier: int
    """Number of jobs that died on the GPU before."""

    watched: float
    """Seconds for which deaths were counted."""

    now: float
    """Seconds since boot."""

    gpus: int
    """Number of GPUs that ran work."""

    clean: float
    """Seconds since the last death of another GPU in which the other GPUs ran work, added up."""

    runs: Mapping[str, Sequence[float]]
    """By parent: seconds of the longest run of its processes on each other GPU."""


def independent_programs(deaths: Iterable[Death], runs: Mapping[str, Sequence[float]]) -> int:
    """Return how many deaths can have no common cause but the GPU. runs: see Series.

    Deaths of one job have one cause, unless its program ran longer on _SIBLINGS other GPUs. Up to RETRIES
    jobs of one user count as one program. Deaths with only Xid 45 count at most as often as others.
    """
    counts = [0, 0]
    for removed in (False, True):
        jobs_of: dict[str, set[str]] = defaultdict(set)
        for death in deaths:
            if death.removed != removed:
                continue
            longer = [run for run in runs.get(death.parent, ()) if run >= _LONGER * max(death.ran, 1.0)]
            if len(longer) >= _SIBLINGS:
                counts[removed] += 1
            elif not death.again:
                jobs_of[death.user].add(death.job)
        counts[removed] += sum(-(-len(jobs) // RETRIES) for jobs in jobs_of.values())
    others, only_removed = counts
    return others + min(only_removed, others)


def chance_rate(programs: int, days: float, clean: float, gpus: int) -> float:
    """Return how often chance gives such a series on a node, per day.

    programs: independent ones within `days` on one of `gpus` GPUs, while the others ran `clean` GPU-days
    without any. Where programs fail on each GPU at a rate r a day, the rate of such series on the node is
    gpus * r * (r * days)^(programs-1) / (programs-1)! * exp(-r * clean). This is its mean over the rates r of
    many nodes, a gamma distribution.
    """
    prior, shape = PRIOR_GPU_DAYS, PRIOR_SHAPE
    rates = lgamma(shape + programs) - lgamma(shape)
    rates += shape * log(prior) - (shape + programs) * log(prior + clean)
    return gpus * exp(rates + (programs - 1) * log(days) - lgamma(programs))


def usual_rate(programs: int, days: float, earlier: float, gpus: int) -> float:
    """Return how often a GPU that is kept for trials gives such a series, per day; see chance_rate.

    earlier: deaths of a day on the GPU before the series.
    """
    if earlier <= 0:
        return 0.0
    return gpus * earlier * exp((programs - 1) * log(earlier * days) - lgamma(programs))


def significant_deaths(series: Series) -> Sequence[Death]:
    """Return the latest deaths of a series that chance does not explain; empty if it may explain all.

    While they happened, the other GPUs ran work for as long at least.
    """
    for first in range(len(series.deaths) - 1, -1, -1):
        deaths = series.deaths[first:]
        programs = independent_programs(deaths, series.runs)
        lasted = series.now - deaths[0].at
        jobs = len({death.job for death in deaths if not death.again})
        # For jobs of one user, which are one program, half the time for each.
        is_fast = lasted <= PACE * max(programs - 1, (jobs - 1) / 2)
        is_controlled = series.clean - deaths[0].clean >= lasted
        if programs < 2 or not is_fast or not is_controlled:
            continue
        days = max(_SHORTEST, lasted) / _DAY
        earlier = series.earlier + sum(not death.again for death in series.deaths[:first])
        daily = earlier * _DAY / max(_DAY, series.watched - lasted)
        by_chance = chance_rate(programs, days, series.clean / _DAY, series.gpus)
        if max(by_chance, usual_rate(programs, days, daily, series.gpus)) <= ACCEPTED_RATE:
            return deaths
    return ()
