"""The figures of the tables, with and without the oracle."""

from __future__ import annotations

from bench.evaluation.comparison import comparison
from bench.evaluation.results import ORACLE, EpisodeResult
from bench.evaluation.score import Score, WrongDomain
from bench.evaluation.tables import cell, decided_causes, tables

WRONG = WrongDomain("fabric/p0", 60.0, 8)


def result(
    seed: int, *named: float | None, rule: str = "present", wrong: int = 0, out: float = 0.0
) -> EpisodeResult:
    return EpisodeResult(
        rule=rule,
        kind="leaf dead" if named else "nothing",
        size_class=64,
        seed=seed,
        attempt=0,
        nodes=64,
        score=Score(hours=3.0, named=named, wrong=(WRONG,) * wrong, healthy_out=out),
        parameters={"nodes": 64.0},
        cpu=0.1,
    )


def test_recall_and_precision() -> None:
    figures = cell([result(1, 60.0, 90.0), result(2, None, 30.0, wrong=1), result(3, 40.0, out=6.0)], {})
    assert (figures.recall.hits, figures.recall.of) == (4, 5)
    assert (figures.precision.hits, figures.precision.of) == (4, 5)
    assert (figures.p50, figures.p95) == (40.0, 90.0)
    assert (figures.healthy_out, figures.undecided) == (2.0, None)
    # Causes of one episode are one trial: three, not five.
    assert figures.recall.low < 0.35


def test_causes_that_no_votes_decide_do_not_count() -> None:
    results = [result(1, 60.0), result(2, None, wrong=1), result(3, None)]
    oracle = [result(1, 0.0, rule=ORACLE), result(2, None, rule=ORACLE), result(3, 0.0, rule=ORACLE)]
    figures = cell(results, decided_causes(oracle))
    assert (figures.recall.hits, figures.recall.of) == (1, 2)
    assert (figures.precision.hits, figures.precision.of) == (1, 1)
    assert figures.undecided == 1 / 3
    assert "| 33% |" in "\n".join(tables([*results, *oracle]))


def test_a_kind_without_a_diagnosis_is_not_the_worst() -> None:
    undecided = [result(1, None), result(1, None, rule=ORACLE)]
    line = next(line for line in tables(undecided) if line.startswith("| all"))
    assert line.startswith("| all | 1 | - | - | - | - | 100% |")


def test_an_episode_without_a_cause_is_right_without_a_domain() -> None:
    figures = cell([result(1), result(2, wrong=2)], {})
    assert (figures.precision.hits, figures.precision.of) == (1, 2)
    assert figures.recall.of == 0


def test_rules_are_compared_by_the_episodes_that_all_have_run() -> None:
    results = [result(1, 60.0), result(2, None), result(3, None), result(1, 90.0, rule="other")]
    results.append(result(2, 60.0, rule="other", out=3.0))
    lines = list(comparison(results))
    assert lines[0] == "`present` / `other`, 2 episodes:"
    assert lines[4] == "| 64 | leaf dead | 2 | 0.50 / 1.00 | 1.00 / 1.00 | - | 0.0 / 1.5 |"
    assert list(comparison(results[:3])) == []
