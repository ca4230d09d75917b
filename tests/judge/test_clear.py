from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.state import AgentState, decode_state, encode_state
from nodeguard.judge import events as cleared
from nodeguard.judge.clear import ClearRequest, ClearResult, clear
from nodeguard.judge.state import JudgeState, OperatorClear
from nodeguard.model.check import AnyOf, Check, Compare, EventOccurred, Increase
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation
from nodeguard.model.signal import Signal
from nodeguard.model.target import NODE, gpu_target, nvlink_target
from nodeguard.pipeline.pipeline import PipelineState
from tests.judge.judged_node import BOOTED, JudgedNode, check, logged, observe, unread

GPU, OTHER = gpu_target("1b:00"), gpu_target("43:00")
LINKS = [nvlink_target(GPU, at) for at in range(3)]
LASTING = check(
    EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("reset", "component-replaced", "operator")
)
FLAPS = check(EventOccurred("gpu.flap", times=3, over=3600.0), targets=("gpu",))
RISEN = check(Increase("a.errors", 3, 3600.0))
LOW = check(Compare("a.level", "below", 5))
BY = "ann"


def now(at: float, boot: str = "boot") -> Instant:
    return Instant(BOOTED + at, at, boot)


def clear_finding(
    node: JudgedNode, at: float, target: str = NODE, *, name: str = "one", part: str = ""
) -> ClearResult:
    node.state, clearing = clear(node.rules, node.state, ClearRequest(name, target, part, BY), now(at))
    return clearing


def broken_event(at: float, target: str = GPU) -> Observation:
    return logged(target, Event("gpu.broke", at, "it broke"))


def active_findings(verdict: Verdict) -> list[tuple[str, str]]:
    return [(finding.check, finding.target) for finding in verdict.findings]


def restart(node: JudgedNode) -> None:
    node.state = decode_state(
        encode_state(AgentState(pipeline=PipelineState(judged=node.state)))
    ).pipeline.judged


def test_clear_ends_an_event_and_names_the_operator() -> None:
    node = JudgedNode(LASTING)
    assert active_findings(node.round(100, broken_event(90), sources=("kmsg",))) == [("one", GPU)]
    assert clear_finding(node, 110, GPU) == ClearResult("one on GPU 0000:1b:00 is cleared", (("one", GPU),))
    after = node.round(110)
    assert active_findings(after) == []
    [past] = after.informational
    assert (past.check, past.target, past.message) == ("one", GPU, "GPU 0000:1b:00; cleared by ann")
    assert node.round(110 + 86_400).informational == ()


def test_event_after_a_clear_starts_a_new_finding() -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(80), sources=("kmsg",))
    node.round(100, broken_event(90))
    clear_finding(node, 110, GPU)
    [again] = node.round(130, broken_event(125)).findings
    assert again.since == BOOTED + 125
    assert [evidence_item.count for evidence_item in again.evidence] == [1]


def test_only_the_named_finding_is_cleared() -> None:
    node = JudgedNode(
        LASTING, check(EventOccurred("gpu.broke"), "two", targets=("gpu",), cleared_by=("operator",))
    )
    node.round(100, broken_event(90), broken_event(90, OTHER), sources=("kmsg",))
    clear_finding(node, 110, GPU)
    assert set(active_findings(node.round(110))) == {("two", GPU), ("one", OTHER), ("two", OTHER)}


@pytest.mark.parametrize("boot", ["boot", "next"])
def test_cleared_finding_stays_cleared_if_the_log_is_read_again(boot: str) -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(90), sources=("kmsg",))
    clear_finding(node, 110, GPU)
    node.round(110)
    # The judge loses its state of the targets, and the log is read from its beginning.
    words = node.state.cleared
    node.state = JudgeState(boot_id="boot", cleared=words)
    after = node.round(300, broken_event(90, GPU), boot=boot)
    assert active_findings(after) == ([] if boot == "boot" else [("one", GPU)]), (
        "another boot's log is another's"
    )


def test_clear_of_a_finding_that_survives_a_reboot_is_kept() -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(90), broken_event(90, OTHER), sources=("kmsg",))
    clear_finding(node, 101, GPU)
    node.round(102)
    assert active_findings(node.round(20, sources=("kmsg",), boot="next")) == [("one", OTHER)]
    assert active_findings(node.round(30, broken_event(25), boot="next")) == [("one", GPU), ("one", OTHER)]


def test_reboot_removes_clears_of_findings_that_it_ends() -> None:
    gone = check(EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("reboot", "operator"))
    node = JudgedNode(gone)
    node.round(100, broken_event(90), sources=("kmsg",))
    clear_finding(node, 101, GPU)
    node.round(20, sources=("kmsg",), boot="next")
    assert node.state.cleared == ()


def test_event_window_starts_after_the_clear() -> None:
    node = JudgedNode(FLAPS)
    flaps = [logged(GPU, *(Event("gpu.flap", at + n) for n in range(3))) for at in (90.0, 120.0, 190.0)]
    assert active_findings(node.round(100, flaps[0], sources=("kmsg",))) == [("one", GPU)]
    clear_finding(node, 110, GPU)
    assert active_findings(node.round(112, logged(GPU, Event("gpu.flap", 111.0)))) == []
    assert active_findings(node.round(130, flaps[1])) == [("one", GPU)]


def test_counter_increases_are_counted_after_the_clear() -> None:
    node = JudgedNode(RISEN)
    node.round(100, observe(a__errors=0))
    assert active_findings(node.round(110, observe(a__errors=5))) == [("one", NODE)]
    assert clear_finding(node, 115).reason == ""
    after = node.round(120, observe(a__errors=7))
    assert active_findings(after) == []
    assert [finding.message for finding in after.informational] == ["node; cleared by ann"]
    assert active_findings(node.round(130, observe(a__errors=8))) == [("one", NODE)]


def test_message_of_a_cleared_finding_has_the_units_of_its_values() -> None:
    rises = check(Increase("a.errors", 3, 3600.0), message="at {a.temperature}")
    node = JudgedNode(rises, signals=(Signal("a.temperature", "gauge", "", "celsius"),))
    node.round(100, observe(a__errors=0, a__temperature=91))
    [active] = node.round(110, observe(a__errors=5, a__temperature=91)).findings
    assert active.message == "at 91 °C"
    clear_finding(node, 115)
    [past] = node.round(120, observe(a__errors=5, a__temperature=62)).informational
    assert past.message == "at 62 °C; cleared by ann"


def test_active_condition_is_not_cleared() -> None:
    node = JudgedNode(LOW)
    node.round(100, observe(a__level=3))
    before = node.state
    clearing = clear_finding(node, 110)
    assert (clearing.reason, clearing.still_active, clearing.cleared) == ("holds", (("one", NODE),), ())
    assert "its condition holds now" in clearing.message
    assert node.state is before
    assert active_findings(node.round(120, observe(a__level=3))) == [("one", NODE)]


def test_event_that_a_reading_confirms_is_not_cleared() -> None:
    either = check(
        AnyOf((EventOccurred("gpu.broke"), Compare("a.level", "below", 5))),
        targets=("gpu",),
        cleared_by=("operator",),
    )
    node = JudgedNode(either)
    node.round(100, broken_event(90), observe(GPU, a__level=3))
    assert clear_finding(node, 110, GPU).reason == "holds"
    node.round(120, observe(GPU, a__level=9))
    assert clear_finding(node, 130, GPU).reason == ""
    assert active_findings(node.round(140, observe(GPU, a__level=9))) == []


def test_stale_finding_is_cleared_and_returns_with_a_bad_reading() -> None:
    node = JudgedNode(LOW)
    node.round(100, observe(a__level=3))
    node.round(110, unread(NODE, "a.level"))
    assert clear_finding(node, 115).reason == ""
    assert active_findings(node.round(120, unread(NODE, "a.level"))) == []
    assert active_findings(node.round(130, observe(a__level=3))) == [("one", NODE)]


def test_clear_of_a_component_does_not_apply_to_another_one() -> None:
    node = JudgedNode(LASTING)
    node.round(100, observe(GPU, part="GPU-1", a__level=9), broken_event(90), sources=("kmsg",))
    wrong = clear_finding(node, 110, GPU, part="GPU-9")
    assert (wrong.reason, wrong.message) == (
        "other-part",
        "one on GPU 0000:1b:00 is not cleared: GPU-1 is there now, not GPU-9",
    )
    assert clear_finding(node, 110, GPU, part="GPU-1").cleared == (("one", GPU),)
    assert active_findings(node.round(120)) == []


def test_clear_of_a_component_does_not_apply_to_its_replacement() -> None:
    only = check(EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("operator",))
    node = JudgedNode(only)
    node.round(100, observe(GPU, part="GPU-1", a__level=9), broken_event(90), sources=("kmsg",))
    clear_finding(node, 110, GPU, part="GPU-1")
    assert active_findings(node.round(120, observe(GPU, part="GPU-1", a__level=9))) == []
    assert active_findings(node.round(130, observe(GPU, part="GPU-2", a__level=9))) == [("one", GPU)]


def test_clear_of_a_component_applies_until_a_replacement_is_read() -> None:
    """The log can be read again before a source reads the component."""
    words = (OperatorClear("one", GPU, "GPU-1", 110.0, BY),)
    for part, left in (("GPU-1", []), ("GPU-2", [("one", GPU)])):
        node = JudgedNode(check(EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("operator",)))
        node.state = JudgeState(boot_id="boot", cleared=words)
        assert active_findings(node.round(120, broken_event(90), sources=("kmsg",))) == []
        assert active_findings(node.round(130, observe(GPU, part=part, a__level=9))) == left


def test_clear_of_a_component_does_not_apply_to_an_unknown_one() -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(90), sources=("kmsg",))
    assert "an unknown component is there now" in clear_finding(node, 110, GPU, part="GPU-1").message


def test_clear_of_a_cause_clears_its_symptoms() -> None:
    symptom = check(EventOccurred("gpu.felt"), "two", targets=("gpu",), symptom_of=("one",))
    node = JudgedNode(LASTING, symptom)
    felt = logged(GPU, Event("gpu.broke", 90.0), Event("gpu.felt", 91.0))
    assert active_findings(node.round(100, felt, sources=("kmsg",))) == [("one", GPU)]
    clearing = clear_finding(node, 110, GPU)
    assert set(clearing.cleared) == {("one", GPU), ("two", GPU)}
    assert clearing.message.endswith("is cleared, with 1 more that it explained or included")
    assert active_findings(node.round(110)) == []


def test_symptom_with_a_bad_reading_stays_after_the_clear_of_its_cause() -> None:
    symptom = check(Compare("a.level", "below", 5), "two", targets=("gpu",), symptom_of=("one",))
    node = JudgedNode(LASTING, symptom)
    node.round(100, broken_event(90), observe(GPU, a__level=3))
    clearing = clear_finding(node, 110, GPU)
    assert (clearing.cleared, clearing.still_active) == ((("one", GPU),), (("two", GPU),))
    assert "still active, as a reading shows: two on GPU 0000:1b:00" in clearing.message
    assert active_findings(node.round(120, observe(GPU, a__level=3))) == [("two", GPU)]


def test_folded_finding_is_cleared_on_all_its_targets() -> None:
    node = JudgedNode(check(EventOccurred("a.link"), targets=("nvlink",), cleared_by=("operator",)))
    events = [logged(link, Event("a.link", 90.0)) for link in LINKS]
    assert active_findings(node.round(100, *events, sources=("kmsg",))) == [("one", GPU)]
    assert len(clear_finding(node, 110, GPU).cleared) == len(LINKS)
    assert active_findings(node.round(110)) == []


@pytest.mark.parametrize(
    ("wanted", "boot", "reason"),
    [
        (ClearRequest("one", GPU), "next", "not-judged"),
        (ClearRequest("none", GPU), "boot", "no-check"),
        (ClearRequest("one", OTHER), "boot", "no-finding"),
        (ClearRequest("one", NODE), "boot", "no-finding"),
    ],
)
def test_clear_of_an_unknown_finding_is_refused(wanted: ClearRequest, boot: str, reason: str) -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(90), sources=("kmsg",))
    state, clearing = clear(node.rules, node.state, wanted, now(110, boot))
    assert (clearing.reason, clearing.cleared) == (reason, ())
    assert state is node.state


def test_before_the_first_round_nothing_is_cleared() -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(90), sources=("kmsg",))
    restart(node)
    assert clear_finding(node, 110, GPU).reason == "not-judged"


def test_second_clear_is_refused_with_the_name_of_the_first_operator() -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(90), sources=("kmsg",))
    clear_finding(node, 110, GPU)
    before = node.state
    again = clear_finding(node, 120, GPU)
    assert (again.reason, again.message) == (
        "no-finding",
        "one on GPU 0000:1b:00 is not active: ann cleared it before",
    )
    assert node.state is before


def test_event_from_the_future_is_cleared() -> None:
    node = JudgedNode(LASTING)
    node.round(100, broken_event(130), sources=("kmsg",))
    clear_finding(node, 110, GPU)
    restart(node)
    assert active_findings(node.round(140, broken_event(130))) == []


def test_number_of_clears_is_limited_and_the_oldest_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleared, "_MAX_CLEARS", 2)
    words = [OperatorClear(name, NODE, "", float(at), BY) for at, name in enumerate("abc")]
    remaining = cleared.add_clears(words[:2], words[2:])
    assert [item.check for item in remaining] == ["b", "c"]
    assert cleared.add_clears(remaining, [OperatorClear("b", NODE, "", 9.0, "bob")])[-1] == OperatorClear(
        "b", NODE, "", 9.0, "bob"
    )


CHECKS: tuple[Check, ...] = (
    LASTING,
    check(EventOccurred("gpu.broke", times=2, over=50.0), "two", targets=("gpu",)),
)
STEPS = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from(["event", "clear", "clear two", "restart", "reread"])),
    max_size=30,
)


@given(STEPS)
def test_only_events_and_readings_after_a_clear_count_in_any_order(steps: list[tuple[int, str]]) -> None:
    node, at = JudgedNode(*CHECKS), 100.0
    node.round(at, observe(GPU, a__level=1), sources=("kmsg",))
    received: list[float] = []
    words = {"one": 0.0, "two": 0.0}
    for later, step in steps:
        at += later
        events: tuple[Observation, ...] = ()
        match step:
            case "event":
                received.append(at)
                events = (broken_event(at),)
            case "restart":
                restart(node)
            case "reread":
                node.state = JudgeState(boot_id="boot", cleared=node.state.cleared)
                events = tuple(map(broken_event, received))
            case _:
                name = "two" if step.endswith("two") else "one"
                stood = (name, GPU) in active_findings(node.round(at))
                state = node.state
                assert (clear_finding(node, at, GPU, name=name).reason == "") == stood
                once = node.state
                assert clear_finding(node, at, GPU, name=name).reason == "no-finding"
                assert node.state is once, "a second time changes nothing"
                assert stood or once is state
                words[name] = at if stood else words[name]
        result = set(active_findings(node.round(at, observe(GPU, a__level=1), *events, sources=("kmsg",))))
        new = any(item > words["one"] for item in received)
        many = sum(item > max(words["two"], at - 50.0) for item in received) >= 2
        assert (("one", GPU) in result) == new
        assert (("two", GPU) in result) == many
