from __future__ import annotations

import re
from typing import get_args

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.render.check_text import check_facts, clearing_text, condition_text, meanings
from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Check,
    ClearSign,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
)
from nodeguard.model.finding import Action, Health
from tests.judge.scene import check

CATALOGUE, SIGNALS = load_catalogue()
CHECKS = CATALOGUE.checks
LOW = Compare("a.level", "below", 5)
BAD = Compare("a.state", "is", "bad")


def against(of: str, name: str = "a.limit", by: float = 0.0, operator: str = "below") -> Compare:
    return Compare("a.level", operator, None, Reference(of, name), by)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (LOW, "a.level is below 5"),
        (Compare("a.level", "at_least", 0.02), "a.level is at least 0.02"),
        (Compare("a.level", "above", 4e9), "a.level is above 4000000000"),
        (Compare("a.state", "is", value=True), "a.state is yes"),
        (Compare("a.state", "is_not", value=False), "a.state is not no"),
        (Compare("a.state", "is_not", ""), "a.state is not empty"),
        (Compare("a.state", "in", ("up", 3, "")), "a.state is one of up, 3, empty"),
        (against("signal"), "a.level is below a.limit"),
        (against("platform", "gpus"), "a.level is below what the platform expects (gpus)"),
        (against("peers"), "a.level is below its peers'"),
        (against("inventory"), "a.level is below the best that was read there before"),
        (against("peers", operator="is_not"), "a.level is not its peers'"),
        (against("peers", by=20), "a.level is more than 20 below its peers'"),
        (against("signal", by=0.5, operator="at_most"), "a.level is 0.5 or more below a.limit"),
        (against("signal", by=5, operator="above"), "a.level is more than 5 above a.limit"),
        (against("signal", by=5, operator="at_least"), "a.level is 5 or more above a.limit"),
        (Increase("a.errors", 3.0, 3600.0), "a.errors rises by 3 or more within 1 h"),
        (EventOccurred("a.happened"), "event a.happened in this boot"),
        (
            EventOccurred("a.happened", {"code": (1, 2), "word": ("",)}, 3, 86_400.0),
            "event a.happened, code 1 or 2, word empty 3 times within 1 d",
        ),
        (Sustained(LOW, 90.0), "a.level is below 5 for 1 min 30 s"),
        (AnyOf((LOW, BAD)), "a.level is below 5 or a.state is bad"),
        (Sustained(AllOf((LOW, BAD)), 60.0), "(a.level is below 5 and a.state is bad) for 1 min"),
        (
            AllOf((AnyOf((LOW, BAD)), Sustained(BAD, 60.0))),
            "(a.level is below 5 or a.state is bad) and a.state is bad for 1 min",
        ),
    ],
)
def test_a_condition_in_words(one: Condition, said: str) -> None:
    assert condition_text(one) == said


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_condition_reads_as_a_sentence(check: Check) -> None:
    said = condition_text(check.when)
    assert not re.search(r"None|True|False|[\[\]{}<>\"=]|~|  | $|^ | ,", said), said
    # Apostrophes belong to the peers; parentheses group, or name what the platform expects.
    assert said.count("'") == said.count("its peers'")
    assert said.count("(") == said.count(")")
    assert not re.search(r"\w\(|\(\)", said), said
    for leaf in check.leaves():
        assert (leaf.event if isinstance(leaf, EventOccurred) else leaf.signal) in said


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_fact_is_said(check: Check) -> None:
    said = dict(check_facts(check))
    assert list(said)[:6] == ["health", "action", "judges", "family", "fires when", "ends with"]
    assert list(said)[-2:] == ["what to do", "basis"]
    assert all(text.strip() and "None" not in text for text in said.values())
    assert ("votes in" in said, "part of" in said) == (bool(check.topologies), bool(check.symptom_of))


@pytest.mark.parametrize("sign", get_args(ClearSign))
def test_every_sign_is_said_in_words(sign: ClearSign) -> None:
    said = clearing_text(check(EventOccurred("a.happened"), clears=(sign,)))
    assert " " in said
    assert said != sign


def test_what_ends_a_finding() -> None:
    assert clearing_text(check(LOW)) == "the condition no longer holds"
    assert (
        clearing_text(check(EventOccurred("a.happened"), clears=("reboot", "operator")))
        == "a reboot, a person"
    )


def test_facts_of_a_check() -> None:
    one = check(
        LOW,
        targets=("gpu", "node"),
        health=Health.FATAL,
        action=Action.RESET_GPU,
        views=("rack", "power"),
        symptom_of=("two",),
        remedy="Reset it.",
        basis="Somebody.",
    )
    assert list(check_facts(one)) == [
        ("health", "fatal"),
        ("action", "reset-gpu"),
        ("judges", "gpu, node"),
        ("family", "family"),
        ("fires when", "a.level is below 5"),
        ("ends with", "the condition no longer holds"),
        ("votes in", "rack, power"),
        ("part of", "two"),
        ("what to do", "Reset it."),
        ("basis", "Somebody."),
    ]


def test_codes_mean_what_the_catalogue_says() -> None:
    words = meanings(CATALOGUE)
    assert words["gpu.recovery_action = 4"] == "drain and reset"
    assert words["gpu.fabric.state = 2"] == "in progress"
    assert {text.partition(" = ")[0] for text in words} <= set(SIGNALS)
