from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.derive.event_decoding import decode_events
from nodeguard.derive.link_errors import LinkErrors
from nodeguard.derive.references import BestReadings
from nodeguard.derive.state import DeriveState
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, nvlink_target
from tests.derive.readings import GPUS, tables, xid

GPU = GPUS[0]


def error(link: int, at: float) -> Event:
    registers = ", ".join(["0x0", "0x0", "0x10000", *["0x0"] * 4])
    return xid(
        74, f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link {link}({registers})", at
    )


def log(*events: Event, target: str = GPU) -> Reading:
    return Reading("kmsg", 0.0, (Observation("kmsg", target, events=events),))


def nvml(
    at: float, *, active: tuple[int, ...] = (0, 1, 2), replays: int = 7, links: int = 3, unread: bool = False
) -> Reading:
    rows = []
    for link in range(links):
        signals: dict[str, Scalar] = {"nvlink.active": link in active, "nvlink.replays": replays}
        missing = {"nvlink.active": "Timeout"} if unread and link == 0 else {}
        for name in missing:
            del signals[name]
        rows.append(Observation("nvml", nvlink_target(GPU, link), signals=signals, unreadable=missing))
    return Reading("nvml", at, tuple(rows))


def run(*readings: Reading, state: DeriveState | None = None) -> tuple[DeriveState, list[Event]]:
    """The state and the events after some readings, each in a round of its own."""
    state, events = state or DeriveState(), []
    for reading in readings:
        state, result = decode_events(state, [reading], tables(), 570)
        events += [
            event for new in result for observation in new.observations for event in observation.events
        ]
    return state, events


def verdicts(events: list[Event]) -> list[object]:
    return [event.fields["verdict"] for event in events if event.signal == "gpu.xid.nvlink"]


def recoveries(events: list[Event]) -> list[float]:
    return [event.at for event in events if event.signal == "gpu.nvlink.recovered"]


def test_the_third_error_of_one_link_within_a_day_is_fatal() -> None:
    _, events = run(log(error(3, 100.0)), log(error(3, 5000.0)), log(error(3, 80_000.0)))
    assert verdicts(events) == ["suspect", "suspect", "fatal"]
    assert "more than 2 within a day" in str(events[-1].fields["detail"])
    assert (events[-1].fields["action"], events[-1].fields["recovery_reported"]) == ("reset-gpu", False)


def test_errors_in_one_reading_are_counted_one_by_one() -> None:
    _, events = run(log(*(error(3, 100.0 + number) for number in range(4))))
    assert verdicts(events) == ["suspect", "suspect", "fatal", "fatal"]


def test_errors_of_other_links_other_gpus_and_other_days_do_not_count() -> None:
    _, events = run(
        log(error(3, 100.0)), log(error(4, 101.0)), log(error(3, 102.0), target=GPUS[1]), log(error(3, 103.0)),
        log(error(3, 100_000.0)),
    )  # fmt: skip
    assert verdicts(events) == ["suspect"] * 5


def test_reset_or_driver_load_resets_the_count() -> None:
    for target, sign in ((GPU, "gpu.reset"), (NODE, "driver.load")):
        reset = log(Event(sign, 300.0), target=target)
        state, events = run(log(error(3, 100.0)), log(error(3, 200.0)), reset, log(error(3, 400.0)))
        assert verdicts(events) == ["suspect"] * 3
        assert state.link_errors == {GPU: LinkErrors({3: (400.0,)})}


def test_reset_between_errors_of_one_reading_resets_the_count() -> None:
    reset = Observation("kmsg", GPU, events=(Event("gpu.reset", 300.0),))
    errors = Observation("kmsg", GPU, events=tuple(error(3, at) for at in (100.0, 200.0, 400.0, 500.0)))
    state, events = run(Reading("kmsg", 600.0, (errors, reset)))
    assert verdicts(events) == ["suspect"] * 4
    assert state.link_errors == {GPU: LinkErrors({3: (400.0, 500.0)})}


def test_event_with_a_count_is_that_number_of_errors() -> None:
    state, events = run(log(replace(error(3, 100.0), count=100_000)))
    assert verdicts(events) == ["fatal"]
    assert state.link_errors[GPU].times == {3: (100.0,) * 3}


def test_links_that_stay_active_without_an_error_have_recovered_after_five_minutes() -> None:
    state, events = run(log(error(1, 100.0)), *(nvml(at) for at in (110.0, 200.0, 400.0)))
    assert recoveries(events) == []
    state, events = run(nvml(410.0), nvml(700.0), state=state)
    assert recoveries(events) == [410.0]
    _, events = run(log(error(1, 800.0)), nvml(810.0), nvml(1110.0), state=state)
    assert recoveries(events) == [1110.0]


def test_inactive_link_new_error_or_unread_link_restarts_the_five_minutes() -> None:
    for disturbance in (
        nvml(300.0, active=(0, 2)),
        nvml(300.0, replays=8),
        nvml(300.0, unread=True),
        log(error(2, 300.0)),
    ):
        later = (nvml(at, replays=8) for at in (301.0, 410.0, 601.0))
        _, events = run(log(error(1, 100.0)), nvml(110.0), disturbance, *later)
        assert recoveries(events) == [601.0], disturbance


def test_links_that_the_board_does_not_wire_may_be_inactive() -> None:
    readings = [nvml(at, links=5) for at in (110.0, 410.0)]
    _, events = run(log(error(1, 100.0)), *readings)
    assert recoveries(events) == [410.0]


def test_a_gpu_with_fewer_active_links_than_it_had_has_not_recovered() -> None:
    state = DeriveState(best={GPU: BestReadings("", {"gpu.nvlink.active": 4.0})})
    _, events = run(log(error(1, 100.0)), *(nvml(at, links=5) for at in (110.0, 410.0)), state=state)
    assert recoveries(events) == []


def test_incomplete_nvml_reading_is_no_evidence_of_a_recovery() -> None:
    cut = [Reading("nvml", at, nvml(at).observations, complete=False) for at in (110.0, 410.0)]
    assert recoveries(run(log(error(1, 100.0)), *cut)[1]) == []


@pytest.mark.parametrize(
    "unread",
    [
        Observation("nvml", nvlink_target(GPU, 2), "hung", detail="no answer"),
        Observation("nvml", nvlink_target(GPU, 2), "detached", detail="detached"),
        Observation("nvml", nvlink_target(GPU, 2), unreadable={"nvlink.active": "Timeout"}),
        Observation("nvml", nvlink_target(GPU, 2), signals={"nvlink.active": True}, unreadable={"nvlink.replays": "Timeout"}),
        Observation("nvml", NODE, unlisted={"nvlink": "NVML was not asked for all links"}),
    ],
    ids=["hung", "detached", "unread state", "unread counter", "unlisted"],
)  # fmt: skip
def test_unread_links_are_no_evidence_of_a_recovery(unread: Observation) -> None:
    readings = [
        Reading("nvml", at, (*nvml(at, active=(0, 1), links=2).observations, unread)) for at in (110.0, 410.0)
    ]
    assert recoveries(run(log(error(1, 100.0)), *readings)[1]) == []


def test_link_error_without_a_message_is_not_counted() -> None:
    state, events = run(log(xid(74, "")), nvml(500.0), nvml(900.0))
    assert state.link_errors == {}
    assert recoveries(events) == []


def test_link_that_failed_to_train_can_recover() -> None:
    for words, link in (
        ("NVLink: Failed to train link 1 to remote PCI:0000:4b:00", 1),
        ("training failed", -1),
    ):
        failure = xid(74, words, 100.0)
        assert run(log(failure))[0].link_errors == {GPU: LinkErrors({link: (100.0,)})}
        _, events = run(log(failure), nvml(110.0), nvml(410.0))
        assert verdicts(events) == ["fatal"]
        assert recoveries(events) == [410.0]


def test_only_recoverable_link_errors_are_cleared_by_a_recovery() -> None:
    _, events = run(log(*(error(3, at) for at in (100.0, 200.0, 300.0))))
    assert [event.fields["recoverable"] for event in events] == [True, True, False]
    assert {event.fields["recovery_reported"] for event in events} == {False}
    fabric = ", ".join(["0x0", "0x0", "0x0", "0x40000", *["0x0"] * 3])
    state, [event] = run(log(xid(74, f"NVLink: fatal error detected on link 3({fabric})")))
    assert (event.fields["verdict"], event.fields["recoverable"]) == ("fatal", False)
    assert state.link_errors == {}
    _, [*_, recovery] = run(log(error(1, 100.0)), nvml(110.0), nvml(410.0))
    assert recovery.fields == {"recoverable": True}


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 100), st.floats(0, 1e6))))
def test_link_error_state_is_bounded_for_any_log(errors: list[tuple[int, int, float]]) -> None:
    state = DeriveState()
    for gpu, link, at in errors:
        state, _ = run(log(error(link, at), target=f"gpu/{gpu}"), state=state)
    assert len(state.link_errors) <= 64
    assert all(len(item.times) <= 64 for item in state.link_errors.values())
    assert all(1 <= len(row) <= 3 for item in state.link_errors.values() for row in item.times.values())
