from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.fleet_api.text.check import check_facts, clearing_text, condition_text, meanings
from nodeguard.model.check import (
    AllOf,
    AnyOf,
    ClearSign,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
)
from nodeguard.model.finding import Action, Health
from tests.judge.judged_node import check

CATALOGUE, SIGNALS = load_catalogue()
CHECKS = CATALOGUE.checks
LOW = Compare("a.level", "below", 5)
BAD = Compare("a.state", "is", "bad")


def against(of: Any, name: str = "a.limit", by: float = 0.0, operator: Any = "below") -> Compare:
    return Compare("a.level", operator, None, Reference(of, name), by)


@pytest.mark.parametrize(
    ("item", "printed"),
    [
        (LOW, "a.level is below 5"),
        (Compare("a.level", "at_least", 0.02), "a.level is at least 0.02"),
        (Compare("a.level", "above", 4e9), "a.level is above 4000000000"),
        (Compare("a.state", "is", value=True), "a.state is yes"),
        (Compare("a.state", "is_not", value=False), "a.state is not no"),
        (Compare("a.state", "is_not", ""), "a.state is not empty"),
        (Compare("a.state", "in", ("up", 3, "")), "a.state is one of up, 3, empty"),
        (against("signal"), "a.level is below a.limit"),
        (against("platform", "gpus"), "a.level is below the value that the platform expects (gpus)"),
        (against("peers"), "a.level is below the value of its peers"),
        (against("inventory"), "a.level is below the best earlier reading"),
        (against("peers", operator="is_not"), "a.level is not the value of its peers"),
        (against("peers", by=20), "a.level is more than 20 below the value of its peers"),
        (against("signal", by=0.5, operator="at_most"), "a.level is 0.5 or more below a.limit"),
        (against("signal", by=5, operator="above"), "a.level is more than 5 above a.limit"),
        (against("signal", by=5, operator="at_least"), "a.level is 5 or more above a.limit"),
        (Increase("a.errors", 3.0, 3600.0), "a.errors rises by 3 or more within 1 h"),
        (EventOccurred("a.happened"), "event a.happened in this boot"),
        (
            EventOccurred("a.happened", {"code": (1, 2), "word": ("",)}, 3, 86_400.0),
            "event a.happened, code 1 or 2, word empty 3 times within 1 d",
        ),
        (
            EventOccurred("a.happened", times=3, over=86_400.0, apart=60.0),
            "event a.happened 3 times, 1 min or more apart, within 1 d",
        ),
        (
            EventOccurred("a.happened", unless_read={"a.level": "nvml", "a.state": "nvml"}),
            "event a.happened in this boot, where no a.level or a.state was read",
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
def test_a_condition_in_words(item: Condition, printed: str) -> None:
    assert condition_text(item) == printed


def test_every_condition_reads_as_a_sentence() -> None:
    for item in CHECKS:
        printed = condition_text(item.when)
        assert not re.search(r"None|True|False|[\[\]{}<>\"=]|~|  | $|^ | ,", printed), printed
        # Apostrophes belong to the peers; parentheses group, or name what the platform expects.
        assert printed.count("'") == printed.count("its peers'"), printed
        assert printed.count("(") == printed.count(")"), printed
        assert not re.search(r"\w\(|\(\)", printed), printed
        for leaf in item.leaves():
            assert (leaf.event if isinstance(leaf, EventOccurred) else leaf.signal) in printed, printed


def test_every_fact_is_shown() -> None:
    first = ["health", "action", "applies to", "family", "fires when", "cleared by"]
    for item in CHECKS:
        printed = {fact.name: fact.value for fact in check_facts(item)}
        assert list(printed)[:6] == first, item.id
        assert list(printed)[-2:] == ["what to do", "source"], item.id
        assert all(text.strip() and "None" not in text for text in printed.values()), item.id
        votes, follows = "votes in" in printed, "symptom of" in printed
        assert (votes, follows) == (bool(item.topologies), bool(item.symptom_of)), item.id


@pytest.mark.parametrize("sign", get_args(ClearSign))
def test_every_clearing_sign_has_a_text(sign: ClearSign) -> None:
    printed = clearing_text(check(EventOccurred("a.happened"), cleared_by=(sign,)))
    assert " " in printed
    assert printed != sign


def test_what_ends_a_finding() -> None:
    assert clearing_text(check(LOW)) == "a reading that no longer meets the condition"
    assert (
        clearing_text(check(EventOccurred("a.happened"), cleared_by=("reboot", "operator")))
        == "a reboot, an operator (nodeguard clear)"
    )


def test_facts_of_a_check() -> None:
    item = check(
        LOW,
        targets=("gpu", "node"),
        health=Health.FATAL,
        action=Action.RESET_GPU,
        topologies=("rack", "power"),
        symptom_of=("two",),
        remedy="Reset it.",
        source="A manual.",
    )
    assert [(fact.name, fact.value) for fact in check_facts(item)] == [
        ("health", "fatal"),
        ("action", "reset-gpu"),
        ("applies to", "gpu, node"),
        ("family", "family"),
        ("fires when", "a.level is below 5"),
        ("cleared by", "a reading that no longer meets the condition"),
        ("votes in", "rack, power"),
        ("symptom of", "two"),
        ("what to do", "Reset it."),
        ("source", "A manual."),
    ]


def test_codes_have_the_meaning_of_the_catalogue() -> None:
    words = meanings(CATALOGUE)
    assert words["gpu.recovery_action = 4"] == "drain and reset"
    assert words["gpu.fabric.state = 2"] == "in progress"
    assert {text.partition(" = ")[0] for text in words} <= set(SIGNALS)
