from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from nodeguard.model.finding import Health
from nodeguard.model.mark import (
    DEVICE_MARKS,
    FINDING_MARKS,
    MARK_KINDS,
    MARK_OF_HEALTH,
    DegradedMark,
    Mark,
    MarkCause,
    MarkRecord,
    worst,
)
from nodeguard.model.policy import Budget, GracePeriods, Marks

PRODUCT = Path(__file__).parents[2] / "nodeguard"

QUARANTINE = MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu", 0.0)
SUSPECT = MarkCause(Mark.SUSPECT, "port-flap", "node", "network", 0.0)
DOMAIN = DegradedMark("fabric/p0", ("link-down",), 0.0)


def test_each_kind_is_described_worst_first() -> None:
    assert [*MARK_KINDS] == [*Mark]
    assert [mark.rank for mark in Mark] == [*range(len(Mark))]


@pytest.mark.parametrize("mark", Mark)
def test_the_policy_has_the_budget_and_the_grace_period_of_each_kind(mark: Mark) -> None:
    assert not mark.kind.budget or hasattr(Budget(), mark.kind.budget)
    assert GracePeriods().of(mark) == {Mark.QUARANTINE: 5.0, Mark.SUSPECT: 60.0}.get(mark, 0.0)


@pytest.mark.parametrize("mark", Mark)
def test_what_a_kind_covers_is_less_bad_and_keeps_no_other_work_away(mark: Mark) -> None:
    for lesser in mark.kind.lesser:
        assert mark.rank < lesser.rank
        assert lesser.kind.gang_only or not mark.kind.gang_only
        assert mark.covers(lesser)
        assert not lesser.covers(mark)
    assert mark.covers(mark)


def test_a_finding_requests_a_mark_by_its_severity() -> None:
    assert MARK_OF_HEALTH == {Health.FATAL: Mark.QUARANTINE, Health.SUSPECT: Mark.SUSPECT}
    assert {*MARK_OF_HEALTH.values()} == {*FINDING_MARKS}
    assert not any(mark.kind.health for mark in Mark if mark not in FINDING_MARKS)
    assert DEVICE_MARKS == (Mark.QUARANTINE,)


def test_a_rule_of_the_policy_names_the_marks_that_findings_request() -> None:
    [values, *_] = get_args(get_args(Marks)[0])
    assert get_args(values) == FINDING_MARKS


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (MarkRecord(), None),
        (MarkRecord((SUSPECT, QUARANTINE), degraded=(DOMAIN,)), Mark.QUARANTINE),
        (MarkRecord((SUSPECT,), degraded=(DOMAIN,)), Mark.SUSPECT),
        (MarkRecord(degraded=(DOMAIN,)), Mark.DOMAIN_DEGRADED),
    ],
)
def test_the_worst_mark_of_a_record(record: MarkRecord, expected: Mark | None) -> None:
    assert worst(record.marks) == expected


def test_only_the_table_names_the_kinds_that_findings_request() -> None:
    naming = re.compile(r"Mark\.(QUARANTINE|SUSPECT)\b")
    modules = {path for path in PRODUCT.rglob("*.py") if naming.search(path.read_text())}
    assert modules <= {PRODUCT / "model" / "mark.py", PRODUCT / "model" / "policy.py"}
