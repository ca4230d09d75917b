from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, Verdict, worst
from tests.judge.judged_node import finding


@pytest.mark.parametrize(
    ("words", "order"),
    [
        (Health, ["ok", "warning", "suspect", "fatal"]),
        (DataStatus, ["fresh", "not-applicable", "stale", "unknown"]),
        (
            Action,
            [
                "none",
                "monitor",
                "restart-workload",
                "restart-service",
                "reset-gpu",
                "reboot-node",
                "replace-component",
                "contact-support",
            ],
        ),
    ],
)
def test_words_have_the_order_of_the_design(words: type[Health], order: list[str]) -> None:
    assert [value.value for value in sorted(words, key=lambda value: value.rank)] == order
    assert [value.rank for value in words] == list(range(len(order)))


@given(st.lists(st.sampled_from(Health), min_size=1))
def test_the_worst_is_one_of_them_and_none_is_worse(states: list[Health]) -> None:
    result = worst(*states)
    assert result in states
    assert all(state.rank <= result.rank for state in states)


def test_actions_are_compared_by_strength_and_not_by_spelling() -> None:
    assert worst(Action.CONTACT_SUPPORT, Action.MONITOR) is Action.CONTACT_SUPPORT
    assert worst(Action.RESET_GPU, Action.REBOOT_NODE) is Action.REBOOT_NODE


def test_the_worst_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        worst()


def test_a_verdict_survives_its_encoding() -> None:
    example = finding("gpu-lost", "gpu/0000:3b:00", health=Health.FATAL, targets=("a", "b"), note="seen once")
    verdict = Verdict(Health.FATAL, DataStatus.UNKNOWN, (example,), evaluated=3)
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def test_a_finding_says_nothing_of_what_it_has_not() -> None:
    encoded = msgspec.json.decode(msgspec.json.encode(finding()))
    assert not encoded.keys() & {"slots", "note"}
    assert msgspec.convert(encoded, Finding).evidence == (Evidence("memory", "one on node", 1.0),)
