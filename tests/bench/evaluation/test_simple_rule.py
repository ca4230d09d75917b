from __future__ import annotations

import pytest

from bench.evaluation.campaign import RULES, Task, run_task
from bench.evaluation.score import Score
from bench.evaluation.simple_rule import SimpleDiagnosis
from nodeguard.model.policy import default_policy

KINDS = ("leaf dead", "two leaves of a pod", "false alarms")


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    return {result.kind: result.score for result in run_task(Task("simple", 64, 2, KINDS))}


def test_a_leaf_is_named(scores: dict[str, Score]) -> None:
    (seconds,) = scores["leaf dead"].named
    assert seconds is not None
    assert seconds < 300.0


def test_two_leaves_of_a_pod_are_taken_for_the_pod(scores: dict[str, Score]) -> None:
    score = scores["two leaves of a pod"]
    assert all(seconds is None or seconds > 1800.0 for seconds in score.named)
    assert any(wrong.name.count("/") == 1 for wrong in score.wrong)


def test_no_check_is_suppressed(scores: dict[str, Score]) -> None:
    assert scores["false alarms"].named == (None,)
    assert not scores["false alarms"].suppressed


def test_a_planner_has_the_rule() -> None:
    diagnosis = RULES["simple"](default_policy(()), ()).diagnosis
    assert isinstance(diagnosis, SimpleDiagnosis)
    assert not diagnosis.evaluate(0.0)
    assert diagnosis.next_evaluation() is None
