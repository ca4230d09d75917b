"""How the causes of a kind show: their shares, onsets and reports, as the oracle knows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import expm1, log
from random import Random

from msgspec import Struct

from bench.evaluation.background import draw_background
from bench.evaluation.observed import EVALUATION, HEARTBEAT, STALE
from bench.evaluation.oracle_model import DelayQuantiles
from bench.evaluation.plants import KINDS
from bench.evaluation.symptoms import SILENT_CHECK, symptom_of
from bench.evaluation.world import Cause, Delay

# Plants that are drawn to learn the shares and speeds of a kind, and groups of their spreads.
_DRAWS, _SPREADS = 9, 3

# Draws of a delay.
_DELAYS = 240

FLAP_CHECK = "port-link-downed"


class Course(Struct, frozen=True):
    """How causes of a kind show: the shares of their members, and the parameters of their onsets."""

    causes: tuple[Cause, ...]

    @property
    def is_together(self) -> bool:
        """Return whether all causes begin at once: they are one diagnosis."""
        return len({cause.start for cause in self.causes}) == 1


@cache
def drawn_courses(kind: str) -> list[Course]:
    """Return some causes of a kind: they show how it usually begins, whatever the world."""
    for attempt in range(_ATTEMPTS):
        background = draw_background(_SIZE_CLASS, 0, attempt)
        plants = [KINDS[kind](background, Random(f"course {number}")) for number in range(_DRAWS)]
        if courses := [Course(plant.causes) for plant in plants if plant is not None]:
            return courses
    return []


# The fleets in which they are drawn: the first that fits.
_SIZE_CLASS, _ATTEMPTS = 256, 20


def by_spread(courses: Sequence[Course]) -> list[Sequence[Course]]:
    """Return causes in groups with similar spreads."""
    ordered = sorted(courses, key=lambda course: course.causes[0].spread)
    size = max(1, -(-len(ordered) // _SPREADS))
    return [ordered[begin : begin + size] for begin in range(0, len(ordered), size)]


def check_of(cause: Cause) -> str:
    """Return the check that shows a cause first."""
    return FLAP_CHECK if cause.symptom == "port-flap" else symptom_of(cause.symptom).check or SILENT_CHECK


def shown_share(cause: Cause) -> float:
    """Return the share of the members that show a cause at any time: not those that flap after its end."""
    if cause.onsets == "uniform":
        return cause.share
    return cause.share * -expm1(-(cause.end - cause.start) / cause.spread)


@cache
def delays_of(
    onsets: tuple[tuple[str, float, str, float], ...], delay: Delay
) -> tuple[DelayQuantiles, DelayQuantiles]:
    """Return the delays of onset and report. onsets: symptom, spread, distribution and duration."""
    chance = Random(0)
    begins = []
    for symptom, spread, distribution, duration in onsets:
        for _ in range(_DELAYS // len(onsets)):
            if distribution == "uniform":
                begin = chance.uniform(0.0, spread)
            else:
                begin = -spread * log(1.0 + chance.random() * expm1(-duration / spread))
            begins.append(begin + symptom_of(symptom).hold)
    if symptom_of(onsets[0][0]).check:
        return DelayQuantiles.of(begins), DelayQuantiles.of(begin + _lag(delay, chance) for begin in begins)
    # An agent that stops is stale some time after its last heartbeat.
    last = [begin - chance.uniform(0.0, HEARTBEAT) for begin in begins]
    return DelayQuantiles.of(last), DelayQuantiles.of(begin + STALE for begin in last)


@cache
def job_delays_of(starts: tuple[float, ...], delay: Delay) -> tuple[DelayQuantiles, DelayQuantiles]:
    """Return the delays of onset and report after the first of some starts of a job."""
    chance = Random(0)
    begins = [start + chance.uniform(0.0, 60.0) for start in starts for _ in range(_DELAYS // len(starts))]
    return DelayQuantiles.of(begins), DelayQuantiles.of(begin + _lag(delay, chance) for begin in begins)


def _lag(delay: Delay, chance: Random) -> float:
    """Return the seconds from an onset to its report."""
    lost = delay.retry if chance.random() < delay.lost else 0.0
    late = delay.median * chance.lognormvariate(0.0, delay.sigma)
    return chance.uniform(0.0, EVALUATION) + late + lost
