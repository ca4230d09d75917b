from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.reporting.schedule import (
    HEARTBEAT,
    LONGEST,
    REWORDED,
    Have,
    Line,
    beaten,
    due,
    failed,
    sequence,
    told,
    when,
)

A = Have("a", "words")
HEARD = told(Line(), "a", "words", 100.0, 1.0)


def test_nothing_is_said_before_the_first_verdict() -> None:
    assert due(Line(), Have(), 0.0) == "nothing"
    assert when(Line(), Have(), 0.0) > 0


def test_a_change_is_told_at_once_and_transitions_go_first() -> None:
    assert due(Line(), A, 0.0) == "report"
    assert due(HEARD, Have("b", "words"), 100.0) == "report"
    assert due(HEARD, Have("b", "words", spooled=True), 100.0) == "spooled"


def test_without_a_change_a_heartbeat_goes_out_every_ten_seconds() -> None:
    assert due(HEARD, A, 109.9) == "nothing"
    assert when(HEARD, A, 109.0) == 1.0
    assert due(HEARD, A, 110.0) == "heartbeat"
    assert due(beaten(HEARD, 110.0, 1.0, resend=False), A, 119.0) == "nothing"
    assert due(beaten(HEARD, 110.0, 1.0, resend=True), A, 110.0) == "report"


def test_other_words_alone_are_told_once_a_minute() -> None:
    reworded = Have("a", "other words")
    assert due(HEARD, reworded, 109.0) == "nothing"
    assert due(HEARD, reworded, 100.0 + REWORDED) == "report"


def test_a_receiver_that_asks_for_everything_always_is_not_answered_in_a_circle() -> None:
    line, now, reports = HEARD, 110.0, 0
    while now < 170.0:
        what = due(line, A, now)
        if what == "report":
            line, reports = told(line, "a", "words", now, 0.5), reports + 1
        elif what == "heartbeat":
            line = beaten(line, now, 0.5, resend=True)
        now += max(0.1, when(line, A, now))
    assert reports <= 7


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(-10, 1e9))
def test_retries_spread_grow_and_have_a_longest_wait(jitters: list[float], put_off: float) -> None:
    line = HEARD
    for at, jitter in enumerate(jitters):
        line = failed(line, 1000.0, jitter)
        wait = line.wait - 1000.0
        assert 0.5 * min(LONGEST, 2.0**at) <= wait <= min(LONGEST, 2.0**at)
        assert due(line, Have("b", "w", spooled=True), 1000.0 + wait * 0.99) == "nothing"
    assert failed(line, 0.0, 1.0, put_off).wait <= 1.25 * LONGEST
    assert beaten(line, 1000.0, 0.0, resend=False).failures == 0


def test_a_receiver_may_put_its_agents_off() -> None:
    assert failed(HEARD, 0.0, 0.0, 30.0).wait == 30.0


@given(st.lists(st.floats(0, 1e8), max_size=20))
def test_sequences_rise_whatever_the_clock_does(monos: list[float]) -> None:
    last = -1
    for mono in monos:
        following = sequence(last, mono)
        assert following > last
        assert following >= int(mono * 1000)
        last = following


def test_a_restarted_agent_goes_on_above_the_last_sequence_of_the_boot() -> None:
    assert sequence(-1, 100.0 + HEARTBEAT) > sequence(sequence(-1, 100.0), 100.0)
