from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.worker.call_log import SYSTEM, CallLog
from nodeguard.worker.nvml_calls import HEALTH, IDENTITY, LINK_FIELDS, MAX_LINKS, ask_all
from tests.worker.recordings import value

_OPENING = {
    (SYSTEM, "nvmlInit"): None,
    (SYSTEM, "nvmlDeviceGetCount"): 1,
    (0, "nvmlDeviceGetHandleByIndex"): None,
}
_NOT_SUPPORTED = {"error": "NVML_ERROR_NOT_SUPPORTED"}


def _asked(
    answers: dict[tuple[int, str], Any],
    resting: frozenset[int] = frozenset(),
    known: dict[int, frozenset[int]] | None = None,
) -> list[tuple[int, str]]:
    """All that is asked of a GPU that answers so, in order; what it has no answer to is not supported."""
    asked: list[tuple[int, str]] = []

    def call(scope: int, name: str) -> Any:
        asked.append((scope, name))
        return (_OPENING | answers).get((scope, name), _NOT_SUPPORTED)

    ask_all(CallLog(call, lambda _: None), resting, known)
    return asked


def _fields(asked: list[tuple[int, str]], numbers: tuple[int, ...]) -> set[str]:
    wanted = tuple(f"nvmlDeviceGetFieldValues({number}," for number in numbers)
    return {name for _, name in asked if name.startswith(wanted)}


@pytest.mark.parametrize("why", [{"error": "NVML_ERROR_DRIVER_NOT_LOADED"}, {"missing": "no library"}])
def test_a_driver_that_does_not_initialise_is_asked_nothing(why: dict[str, str]) -> None:
    assert _asked({(SYSTEM, "nvmlInit"): why}) == [(SYSTEM, "nvmlInit")]


def test_without_a_count_no_device_is_asked() -> None:
    asked = _asked({(SYSTEM, "nvmlDeviceGetCount"): {"error": "NVML_ERROR_UNKNOWN"}})
    assert {scope for scope, _ in asked} == {SYSTEM}


def test_devices_come_one_after_the_other_and_resting_ones_not_at_all() -> None:
    answers = {(SYSTEM, "nvmlDeviceGetCount"): 4} | {
        (i, "nvmlDeviceGetHandleByIndex"): None for i in range(4)
    }
    scopes = [scope for scope, _ in _asked(answers, frozenset({1}))]
    assert list(dict.fromkeys(scopes)) == [SYSTEM, 0, 2, 3]
    assert scopes == sorted(scopes)


def test_of_a_resting_system_only_the_devices_needs_are_asked() -> None:
    system = [name for scope, name in _asked({}, frozenset({SYSTEM})) if scope == SYSTEM]
    assert system == ["nvmlInit", "nvmlDeviceGetCount"]


def test_a_device_without_handle_is_asked_nothing_more() -> None:
    lost = {
        (SYSTEM, "nvmlDeviceGetCount"): 2,
        (0, "nvmlDeviceGetHandleByIndex"): {"error": "NVML_ERROR_GPU_IS_LOST"},
        (1, "nvmlDeviceGetHandleByIndex"): None,
    }
    asked = _asked(lost)
    assert [name for scope, name in asked if scope == 0] == ["nvmlDeviceGetHandleByIndex"]
    assert (1, "nvmlDeviceGetUUID") in asked


def test_identity_comes_first_then_what_the_driver_wants_done() -> None:
    names = [name for scope, name in _asked({}) if scope == 0]
    order = [
        names.index(call)
        for call in (
            "nvmlDeviceGetPciInfo_v3",
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetFieldValues(230,0)",
            "nvmlDeviceGetEccMode",
            "nvmlDeviceGetFieldValues(91,0)",
        )
    ]
    assert order == sorted(order)


def test_of_a_known_device_identity_and_its_links_errors_are_left_out() -> None:
    states = {(0, f"nvmlDeviceGetNvLinkState({link})"): 1 for link in range(2)}
    asked = _asked(states, known={0: frozenset({0})})
    names = {name for scope, name in asked if scope == 0}
    assert not names & {call for row in IDENTITY for call in row.split(" | ")}
    assert {row.split(" | ")[0] for row in HEALTH} <= names
    assert _fields(asked, LINK_FIELDS) == {f"nvmlDeviceGetFieldValues({field},1)" for field in LINK_FIELDS}


def test_a_device_is_known_with_its_active_links_unless_it_is_in_trouble() -> None:
    def known(**answers: Any) -> dict[int, frozenset[int]]:
        all_answers = {name: value(2) if name == "nvmlDeviceGetFieldValues(91,0)" else 1 for name in _LINKS}
        given = {(0, name): result for name, result in (all_answers | answers).items()}
        return ask_all(
            CallLog(lambda *call: (_OPENING | given).get(call, _NOT_SUPPORTED), lambda _: None), frozenset()
        )

    assert known() == {0: frozenset({0, 1})}
    assert known(nvmlDeviceGetEccMode={"error": "NVML_ERROR_GPU_IS_LOST"}) == {}
    assert known(nvmlDeviceGetHandleByIndex={"error": "NVML_ERROR_GPU_IS_LOST"}) == {}


_LINKS = ("nvmlDeviceGetFieldValues(91,0)", "nvmlDeviceGetNvLinkState(0)", "nvmlDeviceGetNvLinkState(1)")


def test_no_call_stands_twice() -> None:
    asked = _asked({(0, f"nvmlDeviceGetNvLinkState({link})"): 1 for link in range(18)})
    assert len(asked) == len(set(asked))


def test_of_several_names_the_first_that_does_not_fail_counts() -> None:
    newer, older = "nvmlDeviceGetTemperatureV(0)", "nvmlDeviceGetTemperature(0)"
    assert (0, older) not in _asked({(0, newer): 50})
    assert (0, older) in _asked({(0, newer): {"error": "NVML_ERROR_FUNCTION_NOT_FOUND"}})


def test_an_inactive_link_is_asked_for_nothing_but_whether_it_sleeps() -> None:
    states = {(0, "nvmlDeviceGetNvLinkState(0)"): 1, (0, "nvmlDeviceGetNvLinkState(1)"): 0}
    asked = _asked(states | {(0, "nvmlDeviceGetFieldValues(91,0)"): value(2)})
    of_active = {f"nvmlDeviceGetFieldValues({field},0)" for field in LINK_FIELDS}
    assert _fields(asked, LINK_FIELDS) == of_active | {"nvmlDeviceGetFieldValues(167,1)"}


def test_a_link_that_fails_does_not_hide_the_next() -> None:
    states = {
        (0, "nvmlDeviceGetNvLinkState(0)"): {"error": "NVML_ERROR_UNKNOWN"},
        (0, "nvmlDeviceGetNvLinkState(1)"): 1,
    }
    count = {(0, "nvmlDeviceGetFieldValues(91,0)"): value(2)}
    assert "nvmlDeviceGetFieldValues(161,1)" in _fields(_asked(states | count), (161,))


@given(claimed=st.integers(0, 1000), there=st.integers(0, 60), known=st.booleans())
def test_links_are_tried_to_their_end_and_never_above_the_most(claimed: int, there: int, known: bool) -> None:
    answers: dict[tuple[int, str], Any] = {(0, f"nvmlDeviceGetNvLinkState({n})"): 0 for n in range(there)}
    if known:
        answers[0, "nvmlDeviceGetFieldValues(91,0)"] = value(claimed)
    tried = sum(name.startswith("nvmlDeviceGetNvLinkState") for _, name in _asked(answers))
    assert tried == min(claimed if known else there + 1, MAX_LINKS)


@pytest.mark.parametrize("word", ["GPU_IS_LOST", "RESET_REQUIRED", "UNKNOWN", "TIMEOUT"])
def test_a_device_that_fails_has_no_links_to_try(word: str) -> None:
    asked = _asked({(0, "nvmlDeviceGetNvLinkState(0)"): {"error": f"NVML_ERROR_{word}"}})
    assert sum(name.startswith("nvmlDeviceGetNvLinkState") for _, name in asked) == 1


def test_c2c_links_are_asked_as_far_as_they_are_counted() -> None:
    asked = _asked({(0, "nvmlDeviceGetFieldValues(170,0)"): value(2)})
    assert _fields(asked, (171,)) == {"nvmlDeviceGetFieldValues(171,0)", "nvmlDeviceGetFieldValues(171,1)"}
