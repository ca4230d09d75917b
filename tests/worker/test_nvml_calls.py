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


def _calls(
    answers: dict[tuple[int, str], Any],
    skip: frozenset[int] = frozenset(),
    recent: dict[int, frozenset[int]] | None = None,
) -> list[tuple[int, str]]:
    """Return the calls to a GPU with these results, in order; other calls are not supported."""
    calls: list[tuple[int, str]] = []

    def call(scope: int, name: str) -> Any:
        calls.append((scope, name))
        return (_OPENING | answers).get((scope, name), _NOT_SUPPORTED)

    ask_all(CallLog(call, lambda _: None), skip, recent)
    return calls


def _fields(calls: list[tuple[int, str]], numbers: tuple[int, ...]) -> set[str]:
    prefixes = tuple(f"nvmlDeviceGetFieldValues({number}," for number in numbers)
    return {name for _, name in calls if name.startswith(prefixes)}


@pytest.mark.parametrize("error", [{"error": "NVML_ERROR_DRIVER_NOT_LOADED"}, {"missing": "no library"}])
def test_without_initialisation_there_are_no_calls(error: dict[str, str]) -> None:
    assert _calls({(SYSTEM, "nvmlInit"): error}) == [(SYSTEM, "nvmlInit")]


def test_without_a_count_no_device_is_called() -> None:
    calls = _calls({(SYSTEM, "nvmlDeviceGetCount"): {"error": "NVML_ERROR_UNKNOWN"}})
    assert {scope for scope, _ in calls} == {SYSTEM}


def test_devices_are_called_in_order_without_resting_ones() -> None:
    answers = {(SYSTEM, "nvmlDeviceGetCount"): 4} | {
        (i, "nvmlDeviceGetHandleByIndex"): None for i in range(4)
    }
    scopes = [scope for scope, _ in _calls(answers, frozenset({1}))]
    assert list(dict.fromkeys(scopes)) == [SYSTEM, 0, 2, 3]
    assert scopes == sorted(scopes)


def test_a_resting_system_gets_only_the_calls_that_devices_need() -> None:
    system = [name for scope, name in _calls({}, frozenset({SYSTEM})) if scope == SYSTEM]
    assert system == ["nvmlInit", "nvmlDeviceGetCount"]


def test_a_device_without_handle_gets_no_more_calls() -> None:
    lost = {
        (SYSTEM, "nvmlDeviceGetCount"): 2,
        (0, "nvmlDeviceGetHandleByIndex"): {"error": "NVML_ERROR_GPU_IS_LOST"},
        (1, "nvmlDeviceGetHandleByIndex"): None,
    }
    calls = _calls(lost)
    assert [name for scope, name in calls if scope == 0] == ["nvmlDeviceGetHandleByIndex"]
    assert (1, "nvmlDeviceGetUUID") in calls


def test_identity_comes_first_then_the_recovery_action() -> None:
    names = [name for scope, name in _calls({}) if scope == 0]
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


def test_the_identity_of_a_recent_device_is_not_read_again() -> None:
    states = {(0, f"nvmlDeviceGetNvLinkState({link})"): 1 for link in range(2)}
    calls = _calls(states, recent={0: frozenset({0})})
    names = {name for scope, name in calls if scope == 0}
    assert not names & {call for row in IDENTITY for call in row.split(" | ")}
    assert {row.split(" | ")[0] for row in HEALTH} <= names
    assert _fields(calls, LINK_FIELDS) == {f"nvmlDeviceGetFieldValues({field},1)" for field in LINK_FIELDS}


def test_a_device_without_errors_is_recent_with_its_active_links() -> None:
    def recent(**answers: Any) -> dict[int, frozenset[int]]:
        all_answers = {name: value(2) if name == "nvmlDeviceGetFieldValues(91,0)" else 1 for name in _LINKS}
        results = {(0, name): result for name, result in (all_answers | answers).items()}
        return ask_all(
            CallLog(lambda *call: (_OPENING | results).get(call, _NOT_SUPPORTED), lambda _: None), frozenset()
        )

    assert recent() == {0: frozenset({0, 1})}
    assert recent(nvmlDeviceGetEccMode={"error": "NVML_ERROR_GPU_IS_LOST"}) == {}
    assert recent(nvmlDeviceGetHandleByIndex={"error": "NVML_ERROR_GPU_IS_LOST"}) == {}


_LINKS = ("nvmlDeviceGetFieldValues(91,0)", "nvmlDeviceGetNvLinkState(0)", "nvmlDeviceGetNvLinkState(1)")


def test_no_call_is_made_twice() -> None:
    calls = _calls({(0, f"nvmlDeviceGetNvLinkState({link})"): 1 for link in range(18)})
    assert len(calls) == len(set(calls))


def test_the_first_function_name_that_does_not_fail_is_used() -> None:
    newer, older = "nvmlDeviceGetTemperatureV(0)", "nvmlDeviceGetTemperature(0)"
    assert (0, older) not in _calls({(0, newer): 50})
    assert (0, older) in _calls({(0, newer): {"error": "NVML_ERROR_FUNCTION_NOT_FOUND"}})


def test_an_inactive_link_gets_only_the_power_state_call() -> None:
    states = {(0, "nvmlDeviceGetNvLinkState(0)"): 1, (0, "nvmlDeviceGetNvLinkState(1)"): 0}
    calls = _calls(states | {(0, "nvmlDeviceGetFieldValues(91,0)"): value(2)})
    of_active = {f"nvmlDeviceGetFieldValues({field},0)" for field in LINK_FIELDS}
    assert _fields(calls, LINK_FIELDS) == of_active | {"nvmlDeviceGetFieldValues(167,1)"}


def test_a_link_that_fails_does_not_hide_the_next() -> None:
    states = {
        (0, "nvmlDeviceGetNvLinkState(0)"): {"error": "NVML_ERROR_UNKNOWN"},
        (0, "nvmlDeviceGetNvLinkState(1)"): 1,
    }
    count = {(0, "nvmlDeviceGetFieldValues(91,0)"): value(2)}
    assert "nvmlDeviceGetFieldValues(161,1)" in _fields(_calls(states | count), (161,))


@given(claimed=st.integers(0, 1000), there=st.integers(0, 60), has_count=st.booleans())
def test_links_are_called_up_to_their_number_and_the_limit(claimed: int, there: int, has_count: bool) -> None:
    answers: dict[tuple[int, str], Any] = {(0, f"nvmlDeviceGetNvLinkState({n})"): 0 for n in range(there)}
    if has_count:
        answers[0, "nvmlDeviceGetFieldValues(91,0)"] = value(claimed)
    tried = sum(name.startswith("nvmlDeviceGetNvLinkState") for _, name in _calls(answers))
    assert tried == min(claimed if has_count else there + 1, MAX_LINKS)


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "RESET_REQUIRED", "UNKNOWN", "TIMEOUT"])
def test_a_failed_device_gets_no_link_calls(error: str) -> None:
    calls = _calls({(0, "nvmlDeviceGetNvLinkState(0)"): {"error": f"NVML_ERROR_{error}"}})
    assert sum(name.startswith("nvmlDeviceGetNvLinkState") for _, name in calls) == 1


def test_c2c_links_are_called_up_to_their_count() -> None:
    calls = _calls({(0, "nvmlDeviceGetFieldValues(170,0)"): value(2)})
    assert _fields(calls, (171,)) == {"nvmlDeviceGetFieldValues(171,0)", "nvmlDeviceGetFieldValues(171,1)"}
