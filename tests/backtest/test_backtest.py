from __future__ import annotations

from msgspec.structs import replace

from nodeguard.backtest.backtest import compare_policies
from nodeguard.model.finding import Health
from nodeguard.model.policy import CheckLimit, GracePeriods
from tests.backtest.scene import FREE, FleetHistory, shown
from tests.fleet.scene import WIDE

SLOW = replace(FREE, grace=GracePeriods(300.0, 300.0))
ONE = replace(FREE, budget=replace(WIDE, check=CheckLimit(("*",), 1, 600.0, 1)))


def test_two_policies_are_compared_mark_by_mark() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.fault(100.0, 2)
    history.say(200.0, 2)
    history.fault(1000.0, 3, "gpu-ecc")
    tested = history.run(FREE, SLOW, until=5000.0)
    found = compare_policies(*tested.results)
    assert shown(found.first) == [("node-2", 105, 801, "proven")]
    assert shown(found.second) == []
    assert [(shown([item]), shown([other])) for item, other in found.both] == [
        ([("node-1", 105, None, "open")], [("node-1", 400, None, "open")]),
        ([("node-3", 1005, None, "open")], [("node-3", 1300, None, "open")]),
    ]
    back = compare_policies(*reversed(tested.results))
    assert (shown(back.first), shown(back.second)) == ([], [("node-2", 105, 801, "proven")])


def test_a_policy_equals_itself() -> None:
    history = FleetHistory()
    history.fault(100.0, 1, health=Health.SUSPECT)
    found = compare_policies(*history.run(FREE, FREE, until=5000.0).results)
    assert (found.first, found.second, len(found.both)) == ((), (), 1)


def test_findings_without_marks_in_both_policies_are_no_difference() -> None:
    history = FleetHistory()
    for number in range(3):
        history.fault(100.0, number)
    tested = history.run(FREE, ONE, until=5000.0)
    found = compare_policies(*tested.results)
    assert len(found.first) == 2
    assert [result.max_marked for result in tested.results] == [3, 1]
    assert [round(result.seconds) for result in tested.results] == [3 * 4895, 4895]


def test_a_replay_continues_until_the_last_findings_have_settled() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    tested = history.run(FREE, SLOW)
    assert [shown(result.marks) for result in tested.results] == [
        [("node-1", 105, None, "open")],
        [("node-1", 400, None, "open")],
    ]
    assert tested.until - tested.since == 401.0
