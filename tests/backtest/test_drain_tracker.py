from __future__ import annotations

from msgspec.structs import replace

from nodeguard.backtest.policy_result import PolicyResult
from nodeguard.model.drain import DrainLimits, DrainMode, DrainPolicy, DrainRule, DrainWhen
from nodeguard.model.finding import Health
from tests.backtest.scene import FREE, START, FleetHistory

RULES = (DrainRule(DrainWhen.IMMEDIATELY, check="gpu-lost"),)
HOURLY = "{0} of {0} drains began within an hour (drain.limits.newPerHour)"
WIDE = DrainLimits(nodes=1.0, hourly=100, domain=100)
DRAINING = replace(FREE, drain=DrainPolicy(DrainMode.ENFORCE, RULES, limits=WIDE))


def drained(result: PolicyResult) -> list[tuple[str, float, float | None]]:
    """Return node, request and begin of each drain, in seconds of the scene."""
    return [
        (
            drain.node,
            round(drain.requested - START),
            None if drain.begun is None else round(drain.begun - START),
        )
        for drain in result.drains
    ]


def limited(**limits: float) -> PolicyResult:
    """Return the result of the faults of three nodes of two racks at once."""
    history = FleetHistory(20)
    for number in (1, 2, 12):
        history.fault(100.0 + number, number)
    policy = replace(DRAINING.drain, limits=replace(WIDE, **limits))
    return history.result(replace(DRAINING, drain=policy), until=9000.0)


def test_a_node_is_drained_once_in_each_quarantine() -> None:
    history = FleetHistory()
    for at in (100.0, 400.0, 5000.0):
        history.fault(at, 1)
        history.report(at + 100.0, 1)
    result = history.result(DRAINING, until=9000.0)
    assert drained(result) == [("node-1", 106, 106), ("node-1", 5006, 5006)]
    assert [(drain.target, drain.checks, drain.reason) for drain in result.drains] == [
        (result.marks[0].target, ("gpu-lost",), "")
    ] * 2
    assert drained(history.result(DRAINING, since=4000.0, until=9000.0)) == [("node-1", 5006, 5006)]


def test_only_fatal_findings_with_a_rule_are_drained() -> None:
    history = FleetHistory()
    history.fault(100.0, 1, "gpu-xid")
    history.fault(100.0, 2, health=Health.SUSPECT)
    assert drained(history.result(DRAINING, until=2000.0)) == []
    history.fault(100.0, 3)
    assert drained(history.result(FREE, until=2000.0)) == []
    observing = replace(DRAINING, drain=replace(DRAINING.drain, mode=DrainMode.OBSERVE))
    assert drained(history.result(observing, until=2000.0)) == [("node-3", 106, 106)]


def test_pods_have_the_time_of_their_notice() -> None:
    history = FleetHistory()
    for number in (1, 2):
        history.fault(100.0, number)
    history.report(600.0, 2)
    rules = (DrainRule(DrainWhen.DEADLINE, check="gpu-lost", after=3600.0),)
    announcing = replace(DRAINING, drain=replace(DRAINING.drain, rules=rules))
    result = history.result(announcing, until=9000.0)
    assert drained(result) == [("node-1", 106, 3706), ("node-2", 106, None)]


def test_the_limit_of_an_hour_delays_drains() -> None:
    result = limited(hourly=2)
    [first, second, third] = drained(result)
    assert (first, second) == (("node-1", 107, 107), ("node-2", 108, 108))
    # An hour after the first one, at the next look.
    assert third[:2] == ("node-12", 118)
    assert third[2] is not None
    assert 3707 <= third[2] <= 3707 + 60
    assert result.drains[2].reason == HOURLY.format(2)
    assert result.drains[2].waited == third[2] - third[1]


def test_a_drain_counts_as_running_for_a_minute() -> None:
    result = limited(nodes=0.0)
    [first, second, third] = [begun for _, _, begun in drained(result)]
    assert first == 107
    assert second is not None
    assert third is not None
    assert 167 <= second <= 227
    assert second + 60 <= third <= second + 120


def test_a_drain_beyond_the_limits_never_begins() -> None:
    history = FleetHistory(20)
    for number in (1, 2, 12):
        history.fault(100.0, number)
    policy = replace(DRAINING.drain, limits=replace(WIDE, hourly=1))
    result = history.result(replace(DRAINING, drain=policy), until=2000.0)
    assert [(drain.node, drain.begun is None, drain.reason) for drain in result.drains] == [
        ("node-1", False, ""),
        ("node-12", True, HOURLY.format(1)),
        ("node-2", True, HOURLY.format(1)),
    ]


def test_drains_change_no_mark() -> None:
    history = FleetHistory(20)
    for number in range(12):
        history.fault(100.0 + 13 * number, number)
        history.report(900.0 + 7 * number, number)
    marks, drained = history.run(FREE, DRAINING, until=9000.0).results
    assert marks.marks == drained.marks
    assert len(drained.drains) == 12
