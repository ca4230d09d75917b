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
from nodeguard.model.target import NODE, gpu_target, nvlink_target
from nodeguard.pipeline.pipeline import PipelineState
from tests.judge.scene import BOOTED, Scene, check, logged, seen, unread

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


def clears(scene: Scene, at: float, slot: str = NODE, *, name: str = "one", part: str = "") -> ClearResult:
    scene.state, clearing = clear(scene.rules, scene.state, ClearRequest(name, slot, part, BY), now(at))
    return clearing


def broke(at: float, slot: str = GPU) -> Observation:
    return logged(slot, Event("gpu.broke", at, "it broke"))


def fired(verdict: Verdict) -> list[tuple[str, str]]:
    return [(finding.check, finding.target) for finding in verdict.findings]


def restarted(scene: Scene) -> None:
    scene.state = decode_state(
        encode_state(AgentState(pipeline=PipelineState(judged=scene.state)))
    ).pipeline.judged


def test_clear_ends_an_event_and_names_the_operator() -> None:
    scene = Scene(LASTING)
    assert fired(scene.round(100, broke(90), sources=("kmsg",))) == [("one", GPU)]
    assert clears(scene, 110, GPU) == ClearResult("one on GPU 0000:1b:00 is cleared", (("one", GPU),))
    after = scene.round(110)
    assert fired(after) == []
    [past] = after.informational
    assert (past.check, past.target, past.message) == ("one", GPU, "GPU 0000:1b:00; cleared by ann")
    assert scene.round(110 + 86_400).informational == ()


def test_event_after_a_clear_starts_a_new_finding() -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(80), sources=("kmsg",))
    scene.round(100, broke(90))
    clears(scene, 110, GPU)
    [again] = scene.round(130, broke(125)).findings
    assert again.since == BOOTED + 125
    assert [evidence_item.count for evidence_item in again.evidence] == [1]


def test_only_the_named_finding_is_cleared() -> None:
    scene = Scene(
        LASTING, check(EventOccurred("gpu.broke"), "two", targets=("gpu",), cleared_by=("operator",))
    )
    scene.round(100, broke(90), broke(90, OTHER), sources=("kmsg",))
    clears(scene, 110, GPU)
    assert set(fired(scene.round(110))) == {("two", GPU), ("one", OTHER), ("two", OTHER)}


@pytest.mark.parametrize("boot", ["boot", "next"])
def test_cleared_finding_stays_cleared_if_the_log_is_read_again(boot: str) -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(90), sources=("kmsg",))
    clears(scene, 110, GPU)
    scene.round(110)
    # The judge loses its state of the targets, and the log is read from its beginning.
    words = scene.state.cleared
    scene.state = JudgeState(boot_id="boot", cleared=words)
    after = scene.round(300, broke(90, GPU), boot=boot)
    assert fired(after) == ([] if boot == "boot" else [("one", GPU)]), "another boot's log is another's"


def test_clear_of_a_finding_that_survives_a_reboot_is_kept() -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(90), broke(90, OTHER), sources=("kmsg",))
    clears(scene, 101, GPU)
    scene.round(102)
    assert fired(scene.round(20, sources=("kmsg",), boot="next")) == [("one", OTHER)]
    assert fired(scene.round(30, broke(25), boot="next")) == [("one", GPU), ("one", OTHER)]


def test_reboot_removes_clears_of_findings_that_it_ends() -> None:
    gone = check(EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("reboot", "operator"))
    scene = Scene(gone)
    scene.round(100, broke(90), sources=("kmsg",))
    clears(scene, 101, GPU)
    scene.round(20, sources=("kmsg",), boot="next")
    assert scene.state.cleared == ()


def test_a_window_counts_from_the_clearing_on() -> None:
    scene = Scene(FLAPS)
    flaps = [logged(GPU, *(Event("gpu.flap", at + n) for n in range(3))) for at in (90.0, 120.0, 190.0)]
    assert fired(scene.round(100, flaps[0], sources=("kmsg",))) == [("one", GPU)]
    clears(scene, 110, GPU)
    assert fired(scene.round(112, logged(GPU, Event("gpu.flap", 111.0)))) == []
    assert fired(scene.round(130, flaps[1])) == [("one", GPU)]


def test_a_counter_counts_from_the_clearing_on() -> None:
    scene = Scene(RISEN)
    scene.round(100, seen(a__errors=0))
    assert fired(scene.round(110, seen(a__errors=5))) == [("one", NODE)]
    assert clears(scene, 115).reason == ""
    after = scene.round(120, seen(a__errors=7))
    assert fired(after) == []
    assert [finding.message for finding in after.informational] == ["node; cleared by ann"]
    assert fired(scene.round(130, seen(a__errors=8))) == [("one", NODE)]


def test_active_condition_is_not_cleared() -> None:
    scene = Scene(LOW)
    scene.round(100, seen(a__level=3))
    before = scene.state
    clearing = clears(scene, 110)
    assert (clearing.reason, clearing.still_active, clearing.cleared) == ("holds", (("one", NODE),), ())
    assert "its condition holds now" in clearing.message
    assert scene.state is before
    assert fired(scene.round(120, seen(a__level=3))) == [("one", NODE)]


def test_event_that_a_reading_confirms_is_not_cleared() -> None:
    either = check(
        AnyOf((EventOccurred("gpu.broke"), Compare("a.level", "below", 5))),
        targets=("gpu",),
        cleared_by=("operator",),
    )
    scene = Scene(either)
    scene.round(100, broke(90), seen(GPU, a__level=3))
    assert clears(scene, 110, GPU).reason == "holds"
    scene.round(120, seen(GPU, a__level=9))
    assert clears(scene, 130, GPU).reason == ""
    assert fired(scene.round(140, seen(GPU, a__level=9))) == []


def test_stale_finding_is_cleared_and_returns_with_a_bad_reading() -> None:
    scene = Scene(LOW)
    scene.round(100, seen(a__level=3))
    scene.round(110, unread(NODE, "a.level"))
    assert clears(scene, 115).reason == ""
    assert fired(scene.round(120, unread(NODE, "a.level"))) == []
    assert fired(scene.round(130, seen(a__level=3))) == [("one", NODE)]


def test_clear_of_a_component_does_not_apply_to_another_one() -> None:
    scene = Scene(LASTING)
    scene.round(100, seen(GPU, part="GPU-1", a__level=9), broke(90), sources=("kmsg",))
    wrong = clears(scene, 110, GPU, part="GPU-9")
    assert (wrong.reason, wrong.message) == (
        "other-part",
        "one on GPU 0000:1b:00 is not cleared: GPU-1 is there now, not GPU-9",
    )
    assert clears(scene, 110, GPU, part="GPU-1").cleared == (("one", GPU),)
    assert fired(scene.round(120)) == []


def test_clear_of_a_component_does_not_apply_to_its_replacement() -> None:
    only = check(EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("operator",))
    scene = Scene(only)
    scene.round(100, seen(GPU, part="GPU-1", a__level=9), broke(90), sources=("kmsg",))
    clears(scene, 110, GPU, part="GPU-1")
    assert fired(scene.round(120, seen(GPU, part="GPU-1", a__level=9))) == []
    assert fired(scene.round(130, seen(GPU, part="GPU-2", a__level=9))) == [("one", GPU)]


def test_clear_of_a_component_applies_until_a_replacement_is_read() -> None:
    """The log can be read again before a source reads the component."""
    words = (OperatorClear("one", GPU, "GPU-1", 110.0, BY),)
    for part, left in (("GPU-1", []), ("GPU-2", [("one", GPU)])):
        scene = Scene(check(EventOccurred("gpu.broke"), targets=("gpu",), cleared_by=("operator",)))
        scene.state = JudgeState(boot_id="boot", cleared=words)
        assert fired(scene.round(120, broke(90), sources=("kmsg",))) == []
        assert fired(scene.round(130, seen(GPU, part=part, a__level=9))) == left


def test_clear_of_a_component_does_not_apply_to_an_unknown_one() -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(90), sources=("kmsg",))
    assert "an unknown component is there now" in clears(scene, 110, GPU, part="GPU-1").message


def test_clear_of_a_cause_clears_its_symptoms() -> None:
    symptom = check(EventOccurred("gpu.felt"), "two", targets=("gpu",), symptom_of=("one",))
    scene = Scene(LASTING, symptom)
    felt = logged(GPU, Event("gpu.broke", 90.0), Event("gpu.felt", 91.0))
    assert fired(scene.round(100, felt, sources=("kmsg",))) == [("one", GPU)]
    clearing = clears(scene, 110, GPU)
    assert set(clearing.cleared) == {("one", GPU), ("two", GPU)}
    assert clearing.message.endswith("is cleared, with 1 more that it explained or included")
    assert fired(scene.round(110)) == []


def test_symptom_with_a_bad_reading_stays_after_the_clear_of_its_cause() -> None:
    symptom = check(Compare("a.level", "below", 5), "two", targets=("gpu",), symptom_of=("one",))
    scene = Scene(LASTING, symptom)
    scene.round(100, broke(90), seen(GPU, a__level=3))
    clearing = clears(scene, 110, GPU)
    assert (clearing.cleared, clearing.still_active) == ((("one", GPU),), (("two", GPU),))
    assert "still active, as a reading shows: two on GPU 0000:1b:00" in clearing.message
    assert fired(scene.round(120, seen(GPU, a__level=3))) == [("two", GPU)]


def test_folded_finding_is_cleared_on_all_its_targets() -> None:
    scene = Scene(check(EventOccurred("a.link"), targets=("nvlink",), cleared_by=("operator",)))
    events = [logged(link, Event("a.link", 90.0)) for link in LINKS]
    assert fired(scene.round(100, *events, sources=("kmsg",))) == [("one", GPU)]
    assert len(clears(scene, 110, GPU).cleared) == len(LINKS)
    assert fired(scene.round(110)) == []


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
    scene = Scene(LASTING)
    scene.round(100, broke(90), sources=("kmsg",))
    state, clearing = clear(scene.rules, scene.state, wanted, now(110, boot))
    assert (clearing.reason, clearing.cleared) == (reason, ())
    assert state is scene.state


def test_before_the_first_round_nothing_is_cleared() -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(90), sources=("kmsg",))
    restarted(scene)
    assert clears(scene, 110, GPU).reason == "not-judged"


def test_second_clear_is_refused_with_the_name_of_the_first_operator() -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(90), sources=("kmsg",))
    clears(scene, 110, GPU)
    before = scene.state
    again = clears(scene, 120, GPU)
    assert (again.reason, again.message) == (
        "no-finding",
        "one on GPU 0000:1b:00 is not active: ann cleared it before",
    )
    assert scene.state is before


def test_event_from_the_future_is_cleared() -> None:
    scene = Scene(LASTING)
    scene.round(100, broke(130), sources=("kmsg",))
    clears(scene, 110, GPU)
    restarted(scene)
    assert fired(scene.round(140, broke(130))) == []


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
def test_only_events_and_readings_after_a_clear_count_in_any_order(
    steps: list[tuple[int, str]],
) -> None:
    scene, at = Scene(*CHECKS), 100.0
    scene.round(at, seen(GPU, a__level=1), sources=("kmsg",))
    received: list[float] = []
    words = {"one": 0.0, "two": 0.0}
    for later, step in steps:
        at += later
        events: tuple[Observation, ...] = ()
        match step:
            case "event":
                received.append(at)
                events = (broke(at),)
            case "restart":
                restarted(scene)
            case "reread":
                scene.state = JudgeState(boot_id="boot", cleared=scene.state.cleared)
                events = tuple(map(broke, received))
            case _:
                name = "two" if step.endswith("two") else "one"
                stood = (name, GPU) in fired(scene.round(at))
                state = scene.state
                assert (clears(scene, at, GPU, name=name).reason == "") == stood
                once = scene.state
                assert clears(scene, at, GPU, name=name).reason == "no-finding"
                assert scene.state is once, "a second time changes nothing"
                assert stood or once is state
                words[name] = at if stood else words[name]
        result = set(fired(scene.round(at, seen(GPU, a__level=1), *events, sources=("kmsg",))))
        new = any(item > words["one"] for item in received)
        many = sum(item > max(words["two"], at - 50.0) for item in received) >= 2
        assert (("one", GPU) in result) == new
        assert (("two", GPU) in result) == many
