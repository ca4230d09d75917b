from __future__ import annotations

from typing import Any

from nodeguard.worker.call_log import SYSTEM, CallLog, error_name


def _answers(scope: int, call: str) -> Any:
    return f"{scope} {call}"


def test_a_call_is_logged_before_it_is_made() -> None:
    lines: list[Any] = []

    def call(scope: int, name: str) -> int:
        lines.append("made")
        return 7

    assert CallLog(call, lines.append)(3, "nvmlDeviceGetName") == 7
    assert lines == [[3, "nvmlDeviceGetName"], "made", [3, {"nvmlDeviceGetName": 7}]]


def test_a_repeated_result_of_a_device_is_logged_as_null() -> None:
    lines: list[Any] = []
    results = iter(([1, 0], [1, 0], [0, 0], [0, 0], {"missing": "no library"}, {"missing": "no library"}))
    log = CallLog(lambda *_: next(results), lines.append, omits_repeated=True)
    for _ in range(4):
        log(0, "nvmlDeviceGetEccMode")
    for _ in range(2):
        log(SYSTEM, "nvmlInit")
    ends = lines[1::2]
    expected = [{"nvmlDeviceGetEccMode": [1, 0]}, None, {"nvmlDeviceGetEccMode": [0, 0]}, None]
    assert [end[1] for end in ends[:4]] == expected
    assert ends[4:] == [[SYSTEM, {"nvmlInit": {"missing": "no library"}}]] * 2


def test_field_values_are_logged_as_one_call() -> None:
    lines: list[Any] = []
    calls: list[Any] = []

    def fields(scope: int, requested: Any) -> list[Any]:
        calls.append((scope, requested))
        return [10, 20]

    assert CallLog(_answers, lines.append, fields).fields(0, [(161, 4), (162, 4)]) == [10, 20]
    assert calls == [(0, ((161, 4), (162, 4)))]
    assert lines == [
        [0, "nvmlDeviceGetFieldValues"],
        [0, {"nvmlDeviceGetFieldValues(161,4)": 10, "nvmlDeviceGetFieldValues(162,4)": 20}],
    ]


def test_field_values_are_single_calls_without_a_batch() -> None:
    calls = CallLog(_answers, lambda _: None).fields(1, [(82, 0)])
    assert calls == ["1 nvmlDeviceGetFieldValues(82,0)"]


def test_no_field_values_are_no_call() -> None:
    lines: list[Any] = []
    assert CallLog(_answers, lines.append).fields(0, []) == []
    assert lines == []


def test_errors_have_names() -> None:
    assert error_name({"error": "EIO"}) == "EIO"
    assert [error_name(result) for result in ({}, None, 3, "error", {"value": 1})] == [""] * 5
