from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.reporting.schedule import (
    HEARTBEAT_INTERVAL,
    MAX_RETRY,
    TEXT_INTERVAL,
    EndpointState,
    Pending,
    after_failure,
    after_heartbeat,
    after_report,
    due_message,
    next_sequence,
    seconds_until_due,
)

A = Pending("a", "words")
ACKNOWLEDGED = after_report(EndpointState(), "a", "words", 100.0, 1.0)


def test_nothing_is_sent_before_the_first_verdict() -> None:
    assert due_message(EndpointState(), Pending(), 0.0) == "nothing"
    assert seconds_until_due(EndpointState(), Pending(), 0.0) > 0


def test_a_change_is_sent_at_once_and_transitions_go_first() -> None:
    assert due_message(EndpointState(), A, 0.0) == "report"
    assert due_message(ACKNOWLEDGED, Pending("b", "words"), 100.0) == "report"
    assert due_message(ACKNOWLEDGED, Pending("b", "words", is_spooled=True), 100.0) == "spooled"


def test_without_a_change_a_heartbeat_goes_out_every_ten_seconds() -> None:
    assert due_message(ACKNOWLEDGED, A, 109.9) == "nothing"
    assert seconds_until_due(ACKNOWLEDGED, A, 109.0) == 1.0
    assert due_message(ACKNOWLEDGED, A, 110.0) == "heartbeat"
    assert due_message(after_heartbeat(ACKNOWLEDGED, 110.0, 1.0, resend=False), A, 119.0) == "nothing"
    assert due_message(after_heartbeat(ACKNOWLEDGED, 110.0, 1.0, resend=True), A, 110.0) == "report"


def test_a_change_of_text_only_is_sent_once_a_minute() -> None:
    new_text = Pending("a", "other words")
    assert due_message(ACKNOWLEDGED, new_text, 109.0) == "nothing"
    assert due_message(ACKNOWLEDGED, new_text, 100.0 + TEXT_INTERVAL) == "report"


def test_repeated_resend_replies_cause_no_loop() -> None:
    endpoint, now, reports = ACKNOWLEDGED, 110.0, 0
    while now < 170.0:
        kind = due_message(endpoint, A, now)
        if kind == "report":
            endpoint, reports = after_report(endpoint, "a", "words", now, 0.5), reports + 1
        elif kind == "heartbeat":
            endpoint = after_heartbeat(endpoint, now, 0.5, resend=True)
        now += max(0.1, seconds_until_due(endpoint, A, now))
    assert reports <= 7


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(-10, 1e9))
def test_retry_delays_spread_grow_and_are_limited(jitters: list[float], retry_after: float) -> None:
    endpoint = ACKNOWLEDGED
    for at, jitter in enumerate(jitters):
        endpoint = after_failure(endpoint, 1000.0, jitter)
        wait = endpoint.not_before - 1000.0
        assert 0.5 * min(MAX_RETRY, 2.0**at) <= wait <= min(MAX_RETRY, 2.0**at)
        assert due_message(endpoint, Pending("b", "w", is_spooled=True), 1000.0 + wait * 0.99) == "nothing"
    assert after_failure(endpoint, 0.0, 1.0, retry_after).not_before <= 1.25 * MAX_RETRY
    assert after_heartbeat(endpoint, 1000.0, 0.0, resend=False).failures == 0


def test_retry_after_delays_the_next_message() -> None:
    assert after_failure(ACKNOWLEDGED, 0.0, 0.0, 30.0).not_before == 30.0


@given(st.lists(st.floats(0, 1e8), max_size=20))
def test_sequences_rise_even_if_the_clock_does_not(monos: list[float]) -> None:
    last = -1
    for mono in monos:
        number = next_sequence(last, mono)
        assert number > last
        assert number >= int(mono * 1000)
        last = number


def test_a_restarted_agent_goes_on_above_the_last_sequence_of_the_boot() -> None:
    assert next_sequence(-1, 100.0 + HEARTBEAT_INTERVAL) > next_sequence(next_sequence(-1, 100.0), 100.0)
