from __future__ import annotations

from nodeguard.agent.transitions import logged_verdict, transitions
from nodeguard.model.finding import DataStatus, Finding, Health, Verdict
from tests.judge.scene import finding


def verdict(*findings: Finding, health: Health = Health.OK) -> Verdict:
    return Verdict(health, DataStatus.FRESH, findings, evaluated=1)


def events(before: Verdict | None, after: Verdict) -> list[object]:
    return [
        line["event"]
        for line in transitions(logged_verdict(before) if before else None, logged_verdict(after))
    ]


def test_what_begins_changes_and_ends_is_told_once() -> None:
    one, worse = verdict(finding("a")), verdict(finding("a", health=Health.FATAL))
    assert events(None, verdict()) == ["node"]
    assert events(verdict(), one) == ["finding"]
    assert events(one, one) == []
    assert events(one, worse) == ["finding changed"]
    assert events(worse, verdict()) == ["finding over"]
    assert events(one, verdict(finding("a", "gpu/0000:1b:00"))) == ["finding", "finding over"]
    assert events(verdict(), verdict(health=Health.FATAL)) == ["node"]


def test_a_node_where_nothing_could_be_judged_is_unknown() -> None:
    [line] = transitions(None, logged_verdict(Verdict(Health.OK, DataStatus.UNKNOWN)))
    assert (line["health"], line["data_status"]) == ("unknown", "unknown")


def test_a_line_says_what_where_and_what_to_do() -> None:
    [line] = transitions(
        logged_verdict(verdict()),
        logged_verdict(verdict(finding("a", "gpu/0000:1b:00", message="it is hot"))),
    )
    assert (line["check"], line["target"], line["message"]) == ("a", "gpu/0000:1b:00", "it is hot")
    assert (line["health"], line["action"]) == ("suspect", "monitor")
