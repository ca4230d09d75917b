from __future__ import annotations

from math import comb, log

import pytest

from bench.evaluation.campaign import RULES, Task, run_task
from bench.evaluation.competing.likelihoods import SURE, everywhere, shared_cause
from bench.evaluation.competing.rule import CompetingDiagnosis
from bench.evaluation.score import Score
from nodeguard.model.policy import default_policy

KINDS = ("leaf dead", "two leaves of a pod", "observer partition")


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    return {result.kind: result.score for result in run_task(Task("competing", 256, 2, KINDS))}


@pytest.mark.parametrize("kind", ["leaf dead", "observer partition"])
def test_a_cause_is_named_soon_and_nothing_else(scores: dict[str, Score], kind: str) -> None:
    (seconds,) = scores[kind].named
    assert seconds is not None
    assert seconds < 300.0
    assert not scores[kind].wrong


def test_two_leaves_of_a_pod_are_not_taken_for_the_pod(scores: dict[str, Score]) -> None:
    assert any(seconds is not None for seconds in scores["two leaves of a pod"].named)
    assert not scores["two leaves of a pod"].wrong


def test_a_shared_cause_is_worth_its_prior_its_share_and_the_rarity_of_its_votes() -> None:
    # The mean of q^3 (1 - q)^5 over all shares q is 1 / (9 comb(8, 3)).
    expected = log(1e-6) - 3 * log(1e-4) - log(9 * comb(8, 3))
    assert shared_cause(3, 8, 1e-4, 1.0, 1e-6) == pytest.approx(expected)


def test_nodes_that_may_still_show_it_are_no_evidence_against_a_cause() -> None:
    values = [shared_cause(3, 8, 1e-4, shown, 1e-6) for shown in (0.0, 0.25, 0.5, 1.0)]
    assert values == sorted(values, reverse=True)


def test_nodes_in_one_domain_speak_for_it_and_scattered_ones_for_a_false_alarm() -> None:
    concentrated = shared_cause(8, 8, 1e-5, 1.0, 1e-6)
    assert concentrated > everywhere(8, 128, 1e-5, 1.0, 1e-6) + SURE
    scattered = 8 * shared_cause(1, 16, 1e-5, 1.0, 1e-6)
    assert everywhere(8, 128, 1e-5, 1.0, 1e-6) > scattered + SURE


def test_a_planner_has_the_rule() -> None:
    diagnosis = RULES["competing"](default_policy(()), ()).diagnosis
    assert isinstance(diagnosis, CompetingDiagnosis)
