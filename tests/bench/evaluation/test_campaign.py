"""Episodes run through the product's planner; a run continues the results of an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.diagnosis import parser, selected, tasks
from bench.evaluation.campaign import Task, run_campaign, run_task
from bench.evaluation.results import BEFORE, ORACLE, EpisodeResult, read_results
from bench.evaluation.tables import tables

KINDS = ("leaf dead", "nothing", BEFORE)


@pytest.fixture(scope="module")
def results() -> list[EpisodeResult]:
    return run_task(Task("present", 256, 1, KINDS))


def test_a_dead_leaf_is_named(results: list[EpisodeResult]) -> None:
    by_kind = {result.kind: result for result in results}
    assert by_kind.keys() == set(KINDS)
    (seconds,) = by_kind["leaf dead"].score.named
    assert seconds is not None
    assert seconds < 600.0
    assert by_kind["nothing"].score.named == ()
    assert by_kind[BEFORE].score.hours >= 1.0


def test_a_kind_does_not_depend_on_the_others(results: list[EpisodeResult]) -> None:
    (single,) = run_task(Task("present", 256, 1, ("leaf dead",)))
    (among_others,) = (result for result in results if result.kind == "leaf dead")
    assert single.score == among_others.score


def test_the_oracle_decides_a_dead_leaf() -> None:
    by_kind = {result.kind: result for result in run_task(Task(ORACLE, 256, 1, KINDS))}
    assert by_kind["leaf dead"].score.named == (0.0,)
    assert by_kind["nothing"].score.named == ()


def test_a_run_is_continued(tmp_path: Path) -> None:
    path, lines = tmp_path / "results.jsonl", list[str]()
    run_campaign([Task("present", 64, 1, ("nothing",))], 1, path, lines.append)
    before = path.read_bytes()
    run_campaign([Task("present", 64, 1, ("nothing", BEFORE))], 1, path, lines.append)
    assert path.read_bytes().startswith(before)
    assert lines == ["1 episode to run", "1 episode to run"]
    # A line that was cut, as by a kill, is run again.
    path.write_bytes(path.read_bytes()[:-5])
    assert [result.kind for result in read_results(path).values()] == ["nothing"]


def test_options_select_results(results: list[EpisodeResult]) -> None:
    options = parser().parse_args(
        ["--nodes", "256", "--seed", "1", "--episodes", "2", "--kinds", "leaf dead"]
    )
    assert tasks(options) == [Task("present", 256, seed, ("leaf dead",)) for seed in (1, 2)]
    assert [result.kind for result in selected(options, results)] == ["leaf dead"]


def test_tables(results: list[EpisodeResult]) -> None:
    lines = list(tables(results))
    assert lines[0] == "Rule `present`, seeds 1 to 1:"
    assert "| 129 to 448 | 2 | 1.00 [0.21, 1.00] | leaf dead 1.00 [0.21, 1.00] |" in "\n".join(lines)
    assert any(line.startswith("| leaf dead | 1 | 1.00") for line in lines)
    assert len(list(tables(results, is_short=True))) < len(lines)
