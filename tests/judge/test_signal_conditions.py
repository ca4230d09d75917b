from __future__ import annotations

from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import Health
from nodeguard.model.observation import DETACHED, Event
from nodeguard.model.target import NODE
from tests.judge.judged_node import JudgedNode, check, logged, observe, unread

LOGGED = check(EventOccurred("a.happened", unless_read={"a.level": "memory", "a.state": "memory"}))
LINE = logged(NODE, Event("a.happened", 5.0))


def test_a_line_counts_where_the_reading_that_should_confirm_it_is_not_offered_or_fails() -> None:
    node = JudgedNode(LOGGED)
    assert node.health(10, LINE, observe(other=1)) is Health.SUSPECT
    assert node.health(20, unread(NODE, "a.level")) is Health.SUSPECT
    assert node.health(30, observe(a__level=0)) is Health.OK
    assert node.health(40, observe(source="other", a__state="good"), unread(NODE, "a.level")) is Health.OK


def test_a_line_waits_for_the_first_round_of_the_source_and_for_an_operator_who_detached_it() -> None:
    node = JudgedNode(LOGGED)
    assert node.health(10, LINE) is Health.OK
    assert node.health(20, unread(NODE, "a.level", DETACHED)) is Health.OK
    assert node.health(30, unread(NODE, "a.level")) is Health.SUSPECT


def test_a_line_counts_in_a_single_evaluation_without_the_source_that_should_confirm_it() -> None:
    assert JudgedNode(LOGGED, one_shot=True).health(10, LINE) is Health.SUSPECT
