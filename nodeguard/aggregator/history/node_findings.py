"""Findings of one node over time, from its reports in the history."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.history.reader import reading
from nodeguard.model.finding import Health
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.wire.report import ReportedFinding

# Reports that are read: the latest.
_REPORTS = 2000

# The last report before the period has the findings at its start.
_QUERY = """
SELECT at, findings FROM report WHERE uid = ? AND id >= coalesce(
    (SELECT max(id) FROM report WHERE uid = ? AND at < ?), 0) ORDER BY id DESC LIMIT ?
"""
_FINDINGS = JsonDecoder(tuple[ReportedFinding, ...])


class FindingPeriod(Struct, frozen=True):
    """A time during which a check reported a finding on a target.

    began: its first occurrence by the agent; ended: of the first report without it, None while the latest
    report has it; seconds since the epoch. health: the worst; message: the latest.
    """

    check: str
    target: str
    health: Health
    message: str
    began: float
    ended: float | None = None


def read_finding_periods(file: str, uid: str, since: float) -> tuple[FindingPeriod, ...]:
    """Return the findings of a node that lasted at `since` or later, the latest first. It blocks.

    file: of the history. since: seconds since the epoch. Raises HistoryError.
    """
    with reading(file) as connection:
        rows = connection.execute(_QUERY, (uid, uid, since, _REPORTS)).fetchall()
        reports = [(at, _FINDINGS.decode(findings)) for at, findings in reversed(rows)]
        periods = finding_periods(reports)
    return tuple(period for period in periods if period.ended is None or period.ended >= since)


def finding_periods(
    reports: Iterable[tuple[float, tuple[ReportedFinding, ...]]],
) -> list[FindingPeriod]:
    """Return the periods of findings in reports of one node, the latest first.

    reports: when each was received, in seconds since the epoch, and its findings; oldest first.
    """
    active: dict[tuple[str, str], FindingPeriod] = {}
    over: list[FindingPeriod] = []
    for at, findings in reports:
        present = {(finding.check, finding.target): finding for finding in findings}
        gone = [key for key in active if key not in present]
        over += [replace(active.pop(key), ended=at) for key in gone]
        for key, finding in present.items():
            before = active.get(key)
            began = before.began if before else max(0.0, at - finding.age)
            healths = (finding.health, before.health) if before else (finding.health,)
            health = max(healths, key=lambda health: health.rank)
            active[key] = FindingPeriod(finding.check, finding.target, health, finding.message, began)
    return sorted([*over, *active.values()], key=lambda period: (period.began, period.check), reverse=True)
