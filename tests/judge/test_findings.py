from __future__ import annotations

import pytest

from nodeguard.judge.context import ConditionReason
from nodeguard.judge.findings import downgrade_old_events, make_stale, merge_symptoms
from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import AllOf, AnyOf, Compare, EventOccurred
from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health
from nodeguard.model.observation import Event
from tests.judge.judged_node import BOOTED, JudgedNode, check, finding, logged, observe

A = EventOccurred("a.happened", over=3600)
DAY = 86_400.0


def reason(at: float, *, event: bool = True) -> ConditionReason:
    occurred = RememberedEvent("a.happened", "kmsg", at, at, 1, "", {}, (at,)) if event else None
    return ConditionReason(at, lambda _: Evidence("kmsg", "x", at), occurred)


def test_finding_has_the_text_of_its_latest_event_and_the_start_of_its_first() -> None:
    node = JudgedNode(check(A, message="{number}, {count} times", cleared_by=()))
    node.round(
        10,
        logged(
            "node",
            Event("a.happened", 4, "first", {"number": 1}),
            Event("a.happened", 8, "second", {"number": 2}),
        ),
    )
    [item] = node.round(20, logged("node", Event("a.happened", 15, "third", {"number": 3}))).findings
    assert (item.message, item.since) == ("3, 3 times", BOOTED + 4)
    assert item.evidence == (Evidence("kmsg", "third", BOOTED + 15, 3, meaning="3, 3 times"),)


def test_each_place_that_counts_is_evidence_and_their_message_has_its_beginning_once() -> None:
    several = EventOccurred("a.happened", times=3, apart=10, over=3600)
    node = JudgedNode(check(several, message="memory overwritten: {what}"))
    events = (
        Event("a.happened", 10, "first", {"what": "list", "code": "free"}),
        Event("a.happened", 30, "second", {"what": "list", "code": "take"}),
        Event("a.happened", 50, "third", {"what": "poison", "cache": "kmalloc-64"}),
    )
    [item] = node.round(60, logged("node", *events)).findings
    assert [evidence.text for evidence in item.evidence] == ["first", "second", "third"]
    assert item.message == "memory overwritten: list; poison"


def test_finding_keeps_its_start_while_it_is_active() -> None:
    node = JudgedNode(check(Compare("hot", "is", value=True)))
    assert [node.round(at, observe(hot=True)).findings[0].since for at in (10, 20)] == [BOOTED + 10] * 2
    node.round(30, observe(hot=False))
    assert node.round(40, observe(hot=True)).findings[0].since == BOOTED + 40


@pytest.mark.parametrize(
    ("message", "action", "remedy"),
    [
        ("reset-gpu", Action.RESET_GPU, "Reset the GPU. Look."),
        ("none", Action.MONITOR, "Look."),
        ("nonsense", Action.MONITOR, "Look."),
    ],
)
def test_stronger_action_of_check_and_event_is_used(message: str, action: Action, remedy: str) -> None:
    node = JudgedNode(check(A))
    [item] = node.round(10, logged("node", Event("a.happened", 4, fields={"action": message}))).findings
    assert (item.action, item.remedy) == (action, remedy)


def test_remedy_that_has_the_action_names_a_stronger_one_once() -> None:
    node = JudgedNode(check(A, remedy="Stop the work, then {action}."))
    [item] = node.round(10, logged("node", Event("a.happened", 4, fields={"action": "reset-gpu"}))).findings
    assert item.remedy == "Stop the work, then reset the GPU."


@pytest.mark.parametrize(
    ("health", "age", "read", "after"),
    [
        (Health.FATAL, DAY - 1, False, Health.FATAL),
        (Health.FATAL, DAY + 1, False, Health.WARNING),
        (Health.SUSPECT, DAY + 1, False, Health.WARNING),
        (Health.WARNING, DAY + 1, False, Health.WARNING),
        (Health.OK, DAY + 1, False, Health.OK),
        (Health.FATAL, DAY + 1, True, Health.FATAL),
    ],
)
def test_old_event_without_confirmation_is_a_warning(
    health: Health, age: float, read: bool, after: Health
) -> None:
    reasons = [reason(1000.0), *([reason(1000.0 + age, event=False)] if read else [])]
    [item] = downgrade_old_events([(check(A), finding(health=health), reasons)], 1000.0 + age)
    assert item.health is after
    assert bool(item.note) is (health is not after)


@pytest.mark.parametrize(
    ("other", "cause", "after"),
    [
        (Health.SUSPECT, "old", Health.FATAL),
        (Health.WARNING, "old", Health.WARNING),
        (Health.SUSPECT, "something else", Health.WARNING),
    ],
)
def test_bad_reading_of_the_same_cause_confirms_an_old_event(
    other: Health, cause: str, after: Health
) -> None:
    old = (check(A, "old"), finding("old", health=Health.FATAL), [reason(0.0)])
    symptom = check(A, "read", symptom_of=(cause,))
    read = (symptom, finding("read", health=other), [reason(2 * DAY, event=False)])
    assert downgrade_old_events([old, read], 2 * DAY)[0].health is after


def test_stale_finding_stays_active_with_the_reason() -> None:
    item = make_stale(finding(), 0.0, "permission denied")
    expected = (DataStatus.STALE, "not read any more: permission denied", Health.SUSPECT)
    assert (item.data_status, item.note, item.health) == expected


def test_cause_has_the_worst_health_and_strongest_action_of_its_symptoms() -> None:
    cause = finding("cause", since=50.0)
    symptoms = [finding("a", health=Health.FATAL, since=20.0), finding("b", action=Action.REPLACE_COMPONENT)]
    item = merge_symptoms(cause, symptoms)
    expected = ("cause", Health.FATAL, Action.REPLACE_COMPONENT, 0.0)
    assert (item.check, item.health, item.action, item.since) == expected
    assert {evidence.text for evidence in item.evidence} == {"cause on node", "a on node", "b on node"}


def test_one_line_is_one_piece_of_evidence_whatever_it_means_to_a_symptom() -> None:
    cause = finding("cause", evidence=(Evidence("kmsg", "unplugged", 1.0, meaning="the port is not up"),))
    symptom = finding("symptom", evidence=(Evidence("kmsg", "unplugged", 1.0, meaning="a cable"),))
    assert merge_symptoms(cause, [symptom, symptom]).evidence == cause.evidence


def test_evidence_of_a_cause_is_kept_with_many_symptoms() -> None:
    def finding_with_evidence(name: str, source: str, number: int) -> Finding:
        return finding(
            name, evidence=tuple(Evidence(source, f"{name} {at}", float(at)) for at in range(number))
        )

    item = merge_symptoms(
        finding_with_evidence("cause", "kmsg", 2),
        [finding_with_evidence("a", "kmsg", 8), finding_with_evidence("b", "nvml", 1)],
    )
    assert len(item.evidence) <= 12
    assert {"cause 0", "cause 1", "b 0"} <= {evidence.text for evidence in item.evidence}
    assert [evidence.text for evidence in item.evidence[:2]] == ["cause 0", "cause 1"]
    assert item.evidence[2].text == "b 0"


def test_log_lines_are_the_first_evidence_and_applicability_is_omitted() -> None:
    local = Compare("fs.network", "is", value=False, evidence=False)
    node = JudgedNode(check(AllOf((local, Compare("fs.answers", "is", value=False), A)), cleared_by=()))
    line = logged("node", Event("a.happened", 8, "late"), Event("a.happened", 4, "early"))
    [item] = node.round(10, line, observe(fs__network=False, fs__answers=False)).findings
    assert [piece.text for piece in item.evidence] == ["late", "fs.answers = no"]


def test_evidence_has_readings_even_with_many_log_lines() -> None:
    many = [EventOccurred(f"a.{at}", over=3600) for at in range(1, 20)]
    node = JudgedNode(check(AnyOf((*many, Compare("hot", "is", value=True))), cleared_by=()))
    lines = logged("node", *(Event(item.event, at, f"line {at}") for at, item in enumerate(many)))
    [item] = node.round(30, lines, observe(hot=True)).findings
    assert len(item.evidence) == 12
    assert item.evidence[-1].text == "hot = yes"
