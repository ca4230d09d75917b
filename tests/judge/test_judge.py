from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.judge import judge as bounds
from nodeguard.judge.judge import judge
from nodeguard.judge.state import ActiveFinding, JudgeState, RememberedEvent, SourceSnapshot, TargetState
from nodeguard.model.check import Compare, EventOccurred, Increase, Sustained
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Reading
from tests.judge.judged_node import BOOTED, JudgedNode, check, finding, logged, observe

GPU = "gpu/0000:1b:00"
A = EventOccurred("a.happened")
CHECKS = (
    check(Compare("hot", "is", value=True), "hot", targets=("gpu", "node")),
    check(
        Sustained(Compare("slow", "is", value=True), 25), "slow", targets=("gpu", "node"), symptom_of=("hot",)
    ),
    check(Increase("n", 3, 60), "errors", targets=("gpu",), health=Health.WARNING),
    check(
        A, "event", targets=("gpu", "node"), cleared_by=("reset", "component-replaced"), health=Health.FATAL
    ),
    check(EventOccurred("b.happened", times=2, over=30), "often", targets=("node",), health=Health.OK),
)

targets = st.sampled_from(["node", GPU, f"{GPU}/nvlink/0"])
truths = st.booleans()
readings_of = st.builds(
    lambda target, hot, slow, n, part: observe(target, hot=hot, slow=slow, n=n, part=part),
    targets,
    truths,
    truths,
    st.integers(0, 20),
    st.sampled_from(["", "one", "two"]),
)
refusals = st.builds(lambda target: Observation("memory", target, unreadable={"hot": "refused"}), targets)
failures = st.just(Observation("memory", "node", "failed", detail="refused"))
events = st.builds(
    lambda target, signal, ago: (target, signal, ago),
    targets,
    st.sampled_from(["a.happened", "b.happened", "gpu.reset"]),
    st.floats(0, 9),
)
rounds = st.lists(
    st.tuples(
        st.lists(st.one_of(readings_of, refusals, failures), max_size=3, unique_by=lambda item: item.target),
        st.lists(events, max_size=2),
    ),
    max_size=12,
)
Rounds = list[tuple[list[Observation], list[tuple[str, str, float]]]]


def inputs(played: Rounds) -> list[tuple[list[Reading], Instant]]:
    """Rounds ten seconds apart, the seventh and all later ones in another boot."""
    result = []
    for number, (observations, happened) in enumerate(played):
        boot, at = divmod(number, 6)
        now = 100.0 + at * 10
        lines = tuple(
            logged(target, Event(signal, now - ago, f"{signal} {number}")) for target, signal, ago in happened
        )
        cut = any(observation.status == "failed" for observation in observations)
        readings = [
            Reading("memory", now, tuple(observations), complete=not cut),
            Reading("kmsg", now, lines),
        ]
        result.append((readings, Instant(BOOTED + number * 10, now, f"boot {boot}")))
    return result


@given(played=rounds)
def test_same_input_and_state_give_the_same_result(played: Rounds) -> None:
    node = JudgedNode(*CHECKS)
    state = JudgeState()
    for readings, instant in inputs(played):
        item = judge(node.rules, state, readings, instant, node.settings)
        assert judge(node.rules, state, readings, instant, node.settings) == item
        state = item[0]


@given(played=rounds)
def test_state_survives_encoding_after_any_round(played: Rounds) -> None:
    node = JudgedNode(*CHECKS)
    state = decoded = JudgeState()
    for readings, instant in inputs(played):
        state, verdict = judge(node.rules, state, readings, instant, node.settings)
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(decoded), type=JudgeState)
        decoded, again = judge(node.rules, decoded, readings, instant, node.settings)
        assert (decoded, again) == (state, verdict)


@given(played=rounds)
def test_empty_round_does_not_change_the_health(played: Rounds) -> None:
    """No time passes and nothing is read: no finding begins or ends."""
    node = JudgedNode(*CHECKS)
    state = JudgeState()
    for readings, instant in inputs(played):
        state, verdict = judge(node.rules, state, readings, instant, node.settings)
        _, again = judge(node.rules, state, [], instant, node.settings)
        assert (again.health, again.findings) == (verdict.health, verdict.findings)


@given(played=rounds)
def test_failed_reading_ends_and_adds_no_finding(played: Rounds) -> None:
    node = JudgedNode(*CHECKS)
    state = JudgeState()
    for readings, instant in inputs(played):
        state, verdict = judge(node.rules, state, readings, instant, node.settings)
        failed = [
            Reading(name, instant.mono, (Observation(name, "node", "failed", detail="x"),), complete=False)
            for name in ("memory", "kmsg")
        ]
        _, failed_round = judge(node.rules, state, failed, instant, node.settings)
        assert {(finding.check, finding.target) for finding in failed_round.findings} == {
            (finding.check, finding.target) for finding in verdict.findings
        }


def test_order_of_sources_in_a_round_does_not_matter() -> None:
    reading, log = (
        Reading("memory", 100, (observe(GPU, hot=True, n=1),)),
        Reading("kmsg", 100, (logged(GPU, Event("a.happened", 99)),)),
    )
    instant = Instant(BOOTED, 100, "boot")
    node = JudgedNode(*CHECKS)
    (_, item), (_, other) = (
        judge(node.rules, JudgeState(), order, instant, node.settings)
        for order in ([reading, log], [log, reading])
    )
    assert item == other


@pytest.mark.parametrize(
    ("clears", "signal", "target", "is_active"),
    [
        (("reset",), "gpu.reset", GPU, False),
        (("reset",), "gpu.reset", "gpu/0000:43:00", True),
        (("driver-reload",), "gpu.reset", GPU, True),
        (("driver-reload",), "driver.load", "node", False),
    ],
)
def test_event_is_cleared_by_a_sign_on_its_target_or_a_parent(
    clears: tuple[str, ...], signal: str, target: str, is_active: bool
) -> None:
    node = JudgedNode(check(A, targets=("gpu",), cleared_by=clears))
    node.round(10, logged(GPU, Event("a.happened", 5)))
    assert bool(node.round(20, logged(target, Event(signal, 15))).findings) is is_active
    assert bool(node.round(30, sources=("kmsg",)).findings) is is_active


def test_event_after_its_clearing_sign_stays_active() -> None:
    node = JudgedNode(check(A, cleared_by=("reset",)))
    verdict = node.round(20, logged("node", Event("gpu.reset", 10), Event("a.happened", 15)))
    assert [finding.check for finding in verdict.findings] == ["one"]


@pytest.mark.parametrize(
    ("clears", "is_active"), [(("reboot", "operator"), False), (("component-replaced", "operator"), True)]
)
def test_event_stays_active_after_a_reboot_that_does_not_clear_it(
    clears: tuple[str, ...], is_active: bool
) -> None:
    node = JudgedNode(check(A, cleared_by=clears, health=Health.FATAL))
    node.round(1000, logged("node", Event("a.happened", 1000)))
    assert bool(node.round(30, sources=("kmsg",), boot="next").findings) is is_active
    [*result] = node.round(30 + 86_400, sources=("kmsg",), boot="next").findings
    assert [item.health for item in result] == ([Health.WARNING] if is_active else [])


def test_an_event_in_a_window_ends_with_its_boot() -> None:
    node = JudgedNode(check(EventOccurred("a.happened", over=3600)))
    assert node.round(1000, logged("node", Event("a.happened", 990))).findings
    assert node.round(5, sources=("kmsg",), boot="next").findings == ()


def test_readings_and_counters_of_the_previous_boot_are_removed() -> None:
    node = JudgedNode(check(Increase("n", 3, 600)))
    node.round(1000, observe(n=2))
    assert node.round(5, observe(n=90), boot="next").findings == ()
    assert node.round(15, observe(n=93), boot="next").findings != ()


def test_replacement_clears_findings_that_only_a_replacement_clears() -> None:
    node = JudgedNode(check(A, targets=("gpu",), cleared_by=("component-replaced",)))
    node.round(10, observe(GPU, part="one"), logged(GPU, Event("a.happened", 5)))
    assert node.round(20, observe(GPU, part="one")).findings
    assert node.round(30, observe(GPU, part="two")).findings == ()


def test_target_is_remembered_while_it_has_events_or_readings() -> None:
    node = JudgedNode(check(A, targets=("gpu",), cleared_by=("operator",)))
    node.round(10, observe(GPU, n=1), logged(GPU, Event("a.happened", 5)), observe("port/mlx5_0/1", n=1))
    verdict = node.round(20, sources=("memory", "kmsg"))
    assert [finding.target for finding in verdict.findings] == [GPU]
    assert set(node.state.targets) == {GPU}


def test_target_of_the_log_is_dropped_when_no_check_needs_its_events() -> None:
    lasting = check(EventOccurred("a.lasts"), targets=("disk",), cleared_by=("operator",))
    passing = check(EventOccurred("a.passes", over=60.0), "two", targets=("disk",))
    node = JudgedNode(lasting, passing)
    node.round(100, logged("disk/a", Event("a.lasts", 90.0)), logged("disk/b", Event("a.passes", 90.0)))
    node.round(86_480, sources=("kmsg",))
    assert set(node.state.targets) == {"disk/a", "disk/b"}
    assert node.health(86_500, sources=("kmsg",)) == Health.WARNING
    assert set(node.state.targets) == {"disk/a"}


def target_of_log(last: float, health: Health | None = None) -> TargetState:
    """Return a target that only the kernel log names."""
    event = RememberedEvent("a.b", "kmsg", last, last, 1, "", {}, (last,))
    active = {"one": ActiveFinding(0.0, finding(health=health))} if health else {}
    return TargetState(first_seen=0.0, events={"x": event}, active=active)


def unread_target(lapsed: float) -> TargetState:
    """Return a target that a source failed to read."""
    return TargetState(first_seen=0.0, sources={"memory": SourceSnapshot({}, {"a.b": "refused"}, "", lapsed)})


READ = TargetState(first_seen=0.0, sources={"memory": SourceSnapshot({"a.b": 1})})


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_MAX_WITHOUT_SOURCE", 2)
    monkeypatch.setattr(bounds, "_MAX_UNREAD", 2)


@pytest.mark.usefixtures("small_limits")
def test_targets_with_readings_are_never_dropped() -> None:
    targets = {f"fs:/{at}": READ for at in range(9)}
    assert bounds.limit_targets(targets) is targets


@pytest.mark.usefixtures("small_limits")
def test_limit_drops_the_oldest_and_healthiest_target_of_the_log_first() -> None:
    targets = {
        "old": target_of_log(1.0),
        "bad": target_of_log(0.0, Health.FATAL),
        "new": target_of_log(3.0),
        "read": READ,
    }
    assert set(bounds.limit_targets(targets)) == {"bad", "new", "read"}


@pytest.mark.usefixtures("small_limits")
def test_limit_drops_the_target_that_is_unread_for_the_longest_time_first() -> None:
    targets = {
        "a": unread_target(3.0),
        "b": unread_target(1.0),
        "c": unread_target(2.0),
        "d": target_of_log(0.0),
    }
    assert set(bounds.limit_targets(targets)) == {"a", "c", "d"}
