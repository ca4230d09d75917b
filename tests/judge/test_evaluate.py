from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.check import AnyOf, Compare, EventOccurred, Increase, Sustained
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.observation import Event
from tests.judge.judged_node import BOOTED, JudgedNode, check, logged, observe, unread

HOT = Compare("hot", "is", value=True)
DIMM = ("dimm", "node")


def test_check_evaluates_only_its_kinds_of_target() -> None:
    node = JudgedNode(check(HOT, targets=("gpu",)))
    verdict = node.round(
        0, observe(hot=True), observe("port/mlx5_0/1", hot=True), observe("gpu/0000:1b:00", hot=True)
    )
    assert [finding.target for finding in verdict.findings] == ["gpu/0000:1b:00"]


@pytest.mark.parametrize(("hot", "passed"), [(False, 1), (True, 0), (None, 0)])
def test_only_evaluated_targets_pass(hot: bool | None, passed: int) -> None:
    verdict = JudgedNode(check(HOT)).round(0, observe(other=1) if hot is None else observe(hot=hot))
    assert len(verdict.passed) == passed


def test_node_does_not_pass_a_check_of_its_components() -> None:
    node = JudgedNode(check(EventOccurred("a.happened"), targets=DIMM))
    assert node.round(0, observe("dimm/mc0/dimm0", n=1), sources=("kmsg",)).passed[0].targets == {"dimm": 1}
    assert (
        JudgedNode(check(EventOccurred("a.happened"), targets=DIMM))
        .round(0, observe(n=1), sources=("kmsg",))
        .passed
        == ()
    )


@pytest.mark.parametrize(("target", "passed"), [("gpu/0000:1b:00", 1), ("port/mlx5_0/1", 0)])
def test_check_without_its_hardware_does_not_pass(target: str, passed: int) -> None:
    node = JudgedNode(check(Compare("hot", "is", value=True), hardware=("gpu",)))
    assert len(node.round(0, observe(hot=False), observe(target, n=1)).passed) == passed


@pytest.mark.parametrize(("make", "passed", "result"), [("a", 1, 1), ("b", 0, 0), (None, 1, 1)])
def test_applies_when_limits_a_check(make: str | None, passed: int, result: int) -> None:
    rule = check(HOT, applies_when=Compare("make", "is", "a"))
    more = {} if make is None else {"make": make}
    assert len(JudgedNode(rule).round(0, observe(hot=False, **more)).passed) == passed
    assert len(JudgedNode(rule).round(0, observe(hot=True, **more)).findings) == result


def test_unread_signal_of_applies_when_is_no_read_failure() -> None:
    rule = check(HOT, applies_when=Compare("make", "is", "a"))
    verdict = JudgedNode(rule).round(0, observe(hot=True), unread("node", "make", source="clock"))
    assert (len(verdict.findings), verdict.read_failures) == (1, ())


def test_finding_stays_with_a_note_when_its_signals_are_unread() -> None:
    node = JudgedNode(check(HOT))
    assert node.round(0, observe(hot=True)).findings[0].data_status is DataStatus.FRESH
    [item] = node.round(10, unread("node", "hot")).findings
    assert (item.data_status, item.note) == (DataStatus.STALE, "not read any more: refused")
    assert node.round(20, unread("node", "hot")).findings[0].note == "not read any more: refused"
    assert node.round(30, observe(hot=False)).findings == ()


def test_unread_signal_without_an_earlier_finding_is_no_finding() -> None:
    verdict = JudgedNode(check(HOT)).round(0, unread("node", "hot"))
    assert (verdict.findings, verdict.data_status) == ((), DataStatus.UNKNOWN)


def test_stale_finding_has_the_reason_of_its_own_signals() -> None:
    """Another check of the same target is unread for another reason."""
    node = JudgedNode(
        check(Compare("other", "is", value=True), "a"),
        check(Increase("n", 1, 60), "b"),
        check(Compare("more", "is", value=True), "c"),
    )
    node.round(0, observe(n=1))
    assert [finding.check for finding in node.round(10, observe(n=2)).findings] == ["b"]
    # A new epoch starts the counter again: it is not unread, and its increase is unknown.
    [item] = node.round(
        20, observe(n=2), unread("node", "other", "first", "x"), unread("node", "more", "last", "y")
    ).findings
    assert item.check == "b"
    [item] = node.round(
        100,
        replace(observe(n=2), epoch="reset"),
        unread("node", "other", "first", "x"),
        unread("node", "more", "last", "y"),
    ).findings
    assert (item.data_status, item.note) == (DataStatus.STALE, "not read any more")


def test_signals_that_no_check_uses_are_dropped() -> None:
    node = JudgedNode(check(HOT, message="{shown}"))
    node.round(0, observe(hot=False, shown=1, traffic=1, fs__disk="disk/sda"))
    assert node.state.targets["node"].sources["memory"].signals == {
        "hot": False,
        "shown": 1,
        "fs.disk": "disk/sda",
    }
    before = node.state.targets["node"]
    node.round(10, observe(hot=False, shown=1, traffic=2, fs__disk="disk/sda"))
    assert node.state.targets["node"] is before


def test_clock_change_moves_the_start_of_active_findings() -> None:
    node = JudgedNode(check(HOT))
    [item] = node.round(10, observe(hot=True), booted=0.0).findings
    assert item.since == 10.0
    [item] = node.round(20, observe(hot=True)).findings
    assert item.since == BOOTED + 10.0
    [item] = node.round(30, unread("node", "hot"), booted=BOOTED + 3600).findings
    assert item.since == BOOTED + 3610.0


def test_cleared_event_is_a_note_and_explains_no_symptom() -> None:
    node = JudgedNode(
        check(EventOccurred("a.happened"), "a", cleared_by=("reset",)), check(HOT, "b", symptom_of=("a",))
    )
    happened = logged("node", Event("a.happened", 5))
    assert [finding.check for finding in node.round(10, happened, observe(hot=True)).findings] == ["a"]
    verdict = node.round(20, logged("node", Event("gpu.reset", 15)), observe(hot=True))
    assert [finding.check for finding in verdict.findings] == ["b"]
    [noted] = verdict.informational
    assert (noted.check, noted.health, noted.message) == ("a", Health.OK, "node; it was reset since")


def test_findings_of_a_removed_target_end() -> None:
    node = JudgedNode(check(HOT, targets=("gpu",)))
    assert node.round(0, observe("gpu/0000:1b:00", hot=True)).findings
    assert node.round(10, sources=("memory",)).findings == ()
    assert node.state.targets == {}


def test_target_missing_from_an_incomplete_round_keeps_its_findings() -> None:
    node = JudgedNode(check(HOT, targets=("gpu",)))
    node.round(0, observe("gpu/0000:1b:00", hot=True))
    [item] = node.round(10, sources=("memory",), complete=False).findings
    assert item.data_status is DataStatus.STALE


def test_sustained_condition_is_remembered_between_rounds() -> None:
    node = JudgedNode(check(Sustained(HOT, 60)))
    assert [node.health(at, observe(hot=True)) for at in (0, 30, 59, 60)] == [Health.OK] * 3 + [
        Health.SUSPECT
    ]
    assert node.health(70, observe(hot=False)) is Health.OK
    assert [node.health(at, observe(hot=True)) for at in (80, 100)] == [Health.OK] * 2


def test_one_shot_finding_has_the_note_seen_once() -> None:
    node = JudgedNode(
        check(Sustained(HOT, 60)), check(AnyOf((HOT, Sustained(HOT, 60))), "certain"), one_shot=True
    )
    notes = {finding.check: finding.note for finding in node.round(0, observe(hot=True)).findings}
    assert notes == {"one": "seen once; the agent reports it after 1 min", "certain": ""}
    notes = {finding.check: finding.note for finding in node.round(20, observe(hot=True)).findings}
    assert notes == {"one": "true for 20 s; the agent reports it after 1 min", "certain": ""}


def test_check_of_health_ok_is_a_note() -> None:
    node = JudgedNode(check(EventOccurred("a.happened", over=60), health=Health.OK))
    verdict = node.round(10, logged("node", Event("a.happened", 5)))
    assert (verdict.health, verdict.findings, [finding.check for finding in verdict.informational]) == (
        Health.OK,
        (),
        ["one"],
    )
