from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.aggregator.history.node_findings import FindingPeriod, finding_periods, read_finding_periods
from nodeguard.aggregator.history.reader import HistoryError
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.model.finding import Health
from tests.aggregator.history.scene import DAY, START, received
from tests.fleet.scene import finding

LOST = finding(age=60.0)
HOT = finding("gpu-hot", health=Health.WARNING, age=0.0, message="89 °C")


def test_a_finding_lasts_from_its_first_occurrence_to_the_first_report_without_it() -> None:
    periods = finding_periods([(1000.0, (LOST,)), (1100.0, (LOST, HOT)), (1200.0, (HOT,))])
    assert periods == [
        FindingPeriod("gpu-hot", "gpu/0000:3b:00", Health.WARNING, "89 °C", 1100.0, None),
        FindingPeriod("gpu-lost", "gpu/0000:3b:00", Health.FATAL, LOST.message, 940.0, 1200.0),
    ]


def test_a_period_has_the_worst_health_and_the_latest_message() -> None:
    worse = finding("gpu-hot", health=Health.FATAL, message="105 °C")
    [period] = finding_periods([(1000.0, (HOT,)), (1100.0, (worse,)), (1200.0, (HOT,))])
    assert (period.health, period.message, period.began) == (Health.FATAL, "89 °C", 1000.0)


def test_the_findings_of_a_node_are_read_from_the_history(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    steps = [
        received(0.0, 1, 1),
        received(DAY, 1, 2, LOST),
        received(2 * DAY, 1, 3),
        received(8 * DAY, 1, 4, HOT),
        received(8 * DAY, 2, 1, LOST),
    ]
    store.add(steps, START)
    # The file is read while it is written.
    assert [period.check for period in read_finding_periods(path, "uid-1", START)] == ["gpu-hot", "gpu-lost"]
    assert [period.check for period in read_finding_periods(path, "uid-1", START + 3 * DAY)] == ["gpu-hot"]
    assert read_finding_periods(path, "uid-9", START) == ()
    store.close()


def test_a_finding_that_is_older_than_the_period_is_shown_while_it_lasts(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    store.add([received(0.0, 1, 1, LOST)], START)
    store.close()
    [period] = read_finding_periods(path, "uid-1", START + 20 * DAY)
    assert (period.began, period.ended) == (START - 60.0, None)


def test_a_history_that_cannot_be_read_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="nothing is recorded yet"):
        read_finding_periods(str(tmp_path / "history.sqlite"), "uid-1", START)
    (tmp_path / "other.sqlite").write_text("this is no database, but a text of some length" * 99)
    with pytest.raises(HistoryError, match="not a history of nodeguard"):
        read_finding_periods(str(tmp_path / "other.sqlite"), "uid-1", START)
