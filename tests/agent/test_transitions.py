from __future__ import annotations

from nodeguard.agent.transitions import log_transitions, logged_verdict
from nodeguard.model.finding import DataStatus, Finding, Health, Verdict
from tests.judge.judged_node import finding
from tests.logs import LogLines


def verdict(*findings: Finding, health: Health = Health.OK) -> Verdict:
    return Verdict(health, DataStatus.FRESH, findings, evaluated=1)


def messages(log: LogLines, before: Verdict | None, after: Verdict) -> list[str]:
    log.lines.clear()
    changed = log_transitions(logged_verdict(before) if before else None, logged_verdict(after))
    assert changed == bool(log.lines)
    return log.messages()


def test_a_finding_is_logged_when_it_is_raised_changed_and_resolved(log: LogLines) -> None:
    suspect, fatal = verdict(finding("a")), verdict(finding("a", health=Health.FATAL))
    moved = verdict(finding("a", "gpu/0000:1b:00"))
    assert messages(log, None, verdict()) == ["node health changed"]
    assert messages(log, verdict(), suspect) == ["finding raised"]
    assert messages(log, suspect, suspect) == []
    assert messages(log, suspect, fatal) == ["finding changed"]
    assert messages(log, fatal, verdict()) == ["finding resolved"]
    assert messages(log, suspect, moved) == ["finding raised", "finding resolved"]
    assert messages(log, verdict(), verdict(health=Health.FATAL)) == ["node health changed"]


def test_the_health_of_a_node_without_evaluated_checks_is_unknown(log: LogLines) -> None:
    assert log_transitions(None, logged_verdict(Verdict(Health.OK, DataStatus.UNKNOWN)))
    [line] = log.lines
    assert (line["level"], line["health"], line["data_status"]) == ("info", "unknown", "unknown")


def test_a_line_has_check_target_summary_and_action(log: LogLines) -> None:
    after = verdict(finding("a", "gpu/0000:1b:00", message="it is hot"))
    assert log_transitions(logged_verdict(verdict()), logged_verdict(after))
    [line] = log.lines
    assert (line["check"], line["target"], line["summary"]) == ("a", "gpu/0000:1b:00", "it is hot")
    assert (line["health"], line["action"]) == ("suspect", "monitor")
