"""Episodes of many worlds in several processes, with a file of results so that a run can be continued.

Worlds of one seed and size class share their background: it is played once, and each kind continues it in a
process of its own, which is forked from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from gc import collect, freeze
from pathlib import Path
from traceback import print_exc

from msgspec import Struct
from msgspec.json import decode, encode

from bench.evaluation.background import draw_background
from bench.evaluation.constants import scaled_planner
from bench.evaluation.corners import drawn_parameters
from bench.evaluation.draw import ATTEMPTS, draw_plant, world_of
from bench.evaluation.oracle_world import WorldOracle
from bench.evaluation.plants import KINDS
from bench.evaluation.replay import MakePlanner, WorldFleet
from bench.evaluation.report_book import ReportBook
from bench.evaluation.results import BEFORE, ORACLE, EpisodeResult, Key, key_of, read_results
from bench.evaluation.score import Score, score
from bench.evaluation.simple_rule import simple_planner
from bench.evaluation.world import Background, Plant
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.policy import default_policy
from nodeguard.simulate.simulation import enforce_all

# The rules that can be evaluated: each makes a planner from a policy and the checks.
RULES: Mapping[str, MakePlanner] = {"present": Planner, "simple": simple_planner}


class Task(Struct, frozen=True):
    """Episodes of one rule, size class and seed, of some kinds. rule: see RULES and constants.scaled_rule."""

    rule: str
    size_class: int
    seed: int
    kinds: tuple[str, ...]


def run_campaign(
    tasks: Iterable[Task], jobs: int, path: Path, log: Callable[[str], None]
) -> dict[Key, EpisodeResult]:
    """Run the episodes that a file of results lacks, and return those of all tasks."""
    results = read_results(path)
    missing = list(_missing(tasks, results))
    log(f"{count_noun(sum(len(task.kinds) for task in missing), 'episode')} to run")
    with ProcessPoolExecutor(jobs) as pool, path.open("ab") as file:
        futures = [pool.submit(run_task, task) for task in missing]
        for number, future in enumerate(as_completed(futures), 1):
            for result in future.result():
                results[key_of(result)] = result
                file.write(encode(result) + b"\n")
            file.flush()
            if number % 50 == 0:
                log(f"{number} of {len(missing)} tasks")
    return results


def _missing(tasks: Iterable[Task], results: Mapping[Key, EpisodeResult]) -> Iterator[Task]:
    for task in tasks:
        kinds = tuple(
            kind for kind in task.kinds if (task.rule, kind, task.size_class, task.seed) not in results
        )
        if kinds:
            yield Task(task.rule, task.size_class, task.seed, kinds)


@cache
def _book() -> ReportBook:
    return ReportBook(*load_catalogue())


def run_task(task: Task) -> list[EpisodeResult]:
    """Run the episodes of a task. A kind that does not fit the first fleet runs in the next that it fits."""
    results: list[EpisodeResult] = []
    rest = set(task.kinds)
    for attempt in range(ATTEMPTS):
        if not rest:
            break
        background = draw_background(task.size_class, task.seed, attempt)
        plants = {
            kind: plant for kind in sorted(rest & KINDS.keys()) if (plant := draw_plant(background, kind))
        }
        if attempt == 0 and BEFORE in rest:
            plants[BEFORE] = Plant(kind=BEFORE, start=background.before)
        if plants and task.rule == ORACLE:
            results += (_decided(background, plant) for plant in plants.values())
        elif plants:
            with _planner_of(task.rule) as make_planner:
                results += _run_background(task, background, plants, make_planner)
        rest -= plants.keys()
    return results


def _decided(background: Background, plant: Plant) -> EpisodeResult:
    """Return which causes the oracle names: those that the votes decide within the episode."""
    began = time.process_time()
    oracle = WorldOracle(world_of(background, plant))
    within = background.until - background.before
    named = (0.0 if oracle.decides(index, within) else None for index in range(len(plant.causes)))
    return _result(ORACLE, background, plant, Score(hours=within / 3600.0, named=tuple(named)), began)


def _result(rule: str, background: Background, plant: Plant, found: Score, began: float) -> EpisodeResult:
    return EpisodeResult(
        rule=rule,
        kind=plant.kind,
        size_class=background.size_class,
        seed=background.seed,
        attempt=background.attempt,
        nodes=background.fleet.size,
        score=found,
        parameters=drawn_parameters(background, plant),
        cpu=round(time.process_time() - began, 4),
    )


def _planner_of(rule: str) -> AbstractContextManager[MakePlanner]:
    return nullcontext(RULES[rule]) if rule in RULES else scaled_planner(rule)


def _run_background(
    task: Task, background: Background, plants: Mapping[str, Plant], make_planner: MakePlanner
) -> Iterator[EpisodeResult]:
    """Play a background, then each plant on a copy of the fleet."""
    began = time.process_time()
    policy = enforce_all(default_policy(load_catalogue()[0].fault_classes))
    fleet = WorldFleet(background, _book(), policy, make_planner)
    nothing = Plant(kind=BEFORE, start=background.before)
    fleet.play(nothing, 0.0, background.before)

    def result(plant: Plant, start: float, end: float) -> EpisodeResult:
        found = score(background, plant, fleet.spans, fleet.marks.close(end), start, end)
        return _result(task.rule, background, plant, found, began)

    def episode(plant: Plant) -> EpisodeResult:
        fleet.play(plant, background.before, background.until)
        return result(plant, background.before, background.until)

    if BEFORE in plants:
        yield result(nothing, 0.0, background.before)
    began = 0.0  # a child's processor time begins at 0
    collect()
    freeze()
    for kind, plant in plants.items():
        if kind != BEFORE:
            yield decode(_in_child(partial(episode, plant)), type=EpisodeResult)


def _in_child(run: Callable[[], EpisodeResult]) -> bytes:
    """Return the encoded result of a function that runs in a forked process. It changes nothing here.

    Raises RuntimeError if the process fails; it has printed its traceback.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(encode(run()))
            os._exit(0)
        finally:
            print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        encoded = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("an episode failed in its process: see the traceback above")
    return encoded
