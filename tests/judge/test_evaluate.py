from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.check import AnyOf, Compare, EventOccurred, Increase, Sustained
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.observation import Event
from tests.judge.scene import BOOTED, Scene, check, logged, seen, unread

HOT = Compare("hot", "is", value=True)
DIMM = ("dimm", "node")


def test_check_evaluates_only_its_kinds_of_target() -> None:
    scene = Scene(check(HOT, targets=("gpu",)))
    verdict = scene.round(
        0, seen(hot=True), seen("port/mlx5_0/1", hot=True), seen("gpu/0000:1b:00", hot=True)
    )
    assert [finding.target for finding in verdict.findings] == ["gpu/0000:1b:00"]


@pytest.mark.parametrize(("hot", "fine"), [(False, 1), (True, 0), (None, 0)])
def test_only_evaluated_targets_pass(hot: bool | None, fine: int) -> None:
    verdict = Scene(check(HOT)).round(0, seen(other=1) if hot is None else seen(hot=hot))
    assert len(verdict.passed) == fine


def test_node_does_not_pass_a_check_of_its_components() -> None:
    scene = Scene(check(EventOccurred("a.happened"), targets=DIMM))
    assert scene.round(0, seen("dimm/mc0/dimm0", n=1), sources=("kmsg",)).passed[0].targets == {"dimm": 1}
    assert (
        Scene(check(EventOccurred("a.happened"), targets=DIMM)).round(0, seen(n=1), sources=("kmsg",)).passed
        == ()
    )


@pytest.mark.parametrize(("slot", "fine"), [("gpu/0000:1b:00", 1), ("port/mlx5_0/1", 0)])
def test_check_without_its_hardware_does_not_pass(slot: str, fine: int) -> None:
    scene = Scene(check(Compare("hot", "is", value=True), hardware=("gpu",)))
    assert len(scene.round(0, seen(hot=False), seen(slot, n=1)).passed) == fine


@pytest.mark.parametrize(("make", "fine", "result"), [("a", 1, 1), ("b", 0, 0), (None, 1, 1)])
def test_applies_when_limits_a_check(make: str | None, fine: int, result: int) -> None:
    rule = check(HOT, applies_when=Compare("make", "is", "a"))
    more = {} if make is None else {"make": make}
    assert len(Scene(rule).round(0, seen(hot=False, **more)).passed) == fine
    assert len(Scene(rule).round(0, seen(hot=True, **more)).findings) == result


def test_unread_signal_of_applies_when_is_no_read_failure() -> None:
    rule = check(HOT, applies_when=Compare("make", "is", "a"))
    verdict = Scene(rule).round(0, seen(hot=True), unread("node", "make", source="clock"))
    assert (len(verdict.findings), verdict.read_failures) == (1, ())


def test_finding_stays_with_a_note_when_its_signals_are_unread() -> None:
    scene = Scene(check(HOT))
    assert scene.round(0, seen(hot=True)).findings[0].data_status is DataStatus.FRESH
    [item] = scene.round(10, unread("node", "hot")).findings
    assert (item.data_status, item.note) == (DataStatus.STALE, "not read any more: refused")
    assert scene.round(20, unread("node", "hot")).findings[0].note == "not read any more: refused"
    assert scene.round(30, seen(hot=False)).findings == ()


def test_unread_signal_without_an_earlier_finding_is_no_finding() -> None:
    verdict = Scene(check(HOT)).round(0, unread("node", "hot"))
    assert (verdict.findings, verdict.data_status) == ((), DataStatus.UNKNOWN)


def test_a_stale_finding_gives_its_own_reason() -> None:
    """Another check of the same slot is unread for another reason."""
    scene = Scene(
        check(Compare("other", "is", value=True), "a"),
        check(Increase("n", 1, 60), "b"),
        check(Compare("more", "is", value=True), "c"),
    )
    scene.round(0, seen(n=1))
    assert [finding.check for finding in scene.round(10, seen(n=2)).findings] == ["b"]
    # A new epoch starts the counter again: it is not unread, and its increase is unknown.
    [item] = scene.round(
        20, seen(n=2), unread("node", "other", "first", "x"), unread("node", "more", "last", "y")
    ).findings
    assert item.check == "b"
    [item] = scene.round(
        100,
        replace(seen(n=2), epoch="reset"),
        unread("node", "other", "first", "x"),
        unread("node", "more", "last", "y"),
    ).findings
    assert (item.data_status, item.note) == (DataStatus.STALE, "not read any more")


def test_signals_that_no_check_uses_are_dropped() -> None:
    scene = Scene(check(HOT, message="{shown}"))
    scene.round(0, seen(hot=False, shown=1, traffic=1, fs__disk="disk/sda"))
    assert scene.state.targets["node"].sources["memory"].signals == {
        "hot": False,
        "shown": 1,
        "fs.disk": "disk/sda",
    }
    before = scene.state.targets["node"]
    scene.round(10, seen(hot=False, shown=1, traffic=2, fs__disk="disk/sda"))
    assert scene.state.targets["node"] is before


def test_clock_change_moves_the_start_of_active_findings() -> None:
    scene = Scene(check(HOT))
    [item] = scene.round(10, seen(hot=True), booted=0.0).findings
    assert item.since == 10.0
    [item] = scene.round(20, seen(hot=True)).findings
    assert item.since == BOOTED + 10.0
    [item] = scene.round(30, unread("node", "hot"), booted=BOOTED + 3600).findings
    assert item.since == BOOTED + 3610.0


def test_cleared_event_is_a_note_and_explains_no_symptom() -> None:
    scene = Scene(
        check(EventOccurred("a.happened"), "a", cleared_by=("reset",)),
        check(HOT, "b", symptom_of=("a",)),
    )
    happened = logged("node", Event("a.happened", 5))
    assert [finding.check for finding in scene.round(10, happened, seen(hot=True)).findings] == ["a"]
    verdict = scene.round(20, logged("node", Event("gpu.reset", 15)), seen(hot=True))
    assert [finding.check for finding in verdict.findings] == ["b"]
    [noted] = verdict.informational
    assert (noted.check, noted.health, noted.message) == ("a", Health.OK, "node; it was reset since")


def test_findings_of_a_removed_target_end() -> None:
    scene = Scene(check(HOT, targets=("gpu",)))
    assert scene.round(0, seen("gpu/0000:1b:00", hot=True)).findings
    assert scene.round(10, sources=("memory",)).findings == ()
    assert scene.state.targets == {}


def test_target_missing_from_an_incomplete_round_keeps_its_findings() -> None:
    scene = Scene(check(HOT, targets=("gpu",)))
    scene.round(0, seen("gpu/0000:1b:00", hot=True))
    [item] = scene.round(10, sources=("memory",), complete=False).findings
    assert item.data_status is DataStatus.STALE


def test_sustained_condition_is_remembered_between_rounds() -> None:
    scene = Scene(check(Sustained(HOT, 60)))
    assert [scene.health(at, seen(hot=True)) for at in (0, 30, 59, 60)] == [Health.OK] * 3 + [Health.SUSPECT]
    assert scene.health(70, seen(hot=False)) is Health.OK
    assert [scene.health(at, seen(hot=True)) for at in (80, 100)] == [Health.OK] * 2


def test_one_shot_finding_has_the_note_seen_once() -> None:
    scene = Scene(
        check(Sustained(HOT, 60)), check(AnyOf((HOT, Sustained(HOT, 60))), "certain"), one_look=True
    )
    notes = {finding.check: finding.note for finding in scene.round(0, seen(hot=True)).findings}
    assert notes == {"one": "seen once", "certain": ""}
    notes = {finding.check: finding.note for finding in scene.round(20, seen(hot=True)).findings}
    assert notes == {"one": "has held for 20 s, settles after 1 min", "certain": ""}


def test_check_of_health_ok_is_a_note() -> None:
    scene = Scene(check(EventOccurred("a.happened", over=60), health=Health.OK))
    verdict = scene.round(10, logged("node", Event("a.happened", 5)))
    assert (verdict.health, verdict.findings, [finding.check for finding in verdict.informational]) == (
        Health.OK,
        (),
        ["one"],
    )
