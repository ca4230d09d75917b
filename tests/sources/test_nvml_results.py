from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.model.signal import Scalar
from nodeguard.sources.nvml_results import error_name, nvml_reason, read_rows
from nodeguard.sources.nvml_rows import Row
from nodeguard.sources.nvml_table import C2C, GPU, NVLINK
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml
from tests.worker.recordings import value

DENIED = {"error": "NVML_ERROR_NO_PERMISSION"}
UNSUPPORTED = {"error": "NVML_ERROR_NOT_SUPPORTED"}
NOTHING: tuple[dict[str, Scalar], dict[str, str]] = ({}, {})


def failed(error: str) -> dict[str, str]:
    return {"error": f"NVML_ERROR_{error}"}


# Which of several call names is used, and the meaning of a failed call.


def test_newer_call_takes_precedence_if_it_returns_a_value() -> None:
    newer, older = "nvmlDeviceGetTemperatureV(0)", "nvmlDeviceGetTemperature(0)"
    for first in (UNSUPPORTED, DENIED, None):
        assert read_rows(GPU, {newer: first, older: 50}) == ({"gpu.temperature": 50.0}, {})
    assert read_rows(GPU, {newer: 60, older: 50}) == ({"gpu.temperature": 60.0}, {})
    assert read_rows(GPU, {newer: DENIED, older: UNSUPPORTED})[1] == {
        "gpu.temperature": nvml_reason(error_name(DENIED))
    }


@pytest.mark.parametrize(
    "error",
    [
        "NOT_SUPPORTED",
        "FUNCTION_NOT_FOUND",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "ARGUMENT_VERSION_MISMATCH",
        "DEPRECATED",
    ],
)
def test_missing_feature_is_not_applicable(error: str) -> None:
    assert read_rows(GPU, {"nvmlDeviceGetPersistenceMode": failed(error)}) == NOTHING
    assert read_rows(GPU, {"nvmlDeviceGetPersistenceMode": failed(error)}, complete=False)[1].keys() == {
        row.signal.name for row in GPU if row.signal.name != "gpu.persistence"
    }


def test_missing_call_is_not_applicable() -> None:
    assert read_rows(GPU, {}) == NOTHING


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("NO_PERMISSION", "permission denied: run as root"),
        ("TIMEOUT", "the driver timed out"),
        ("NO_DATA", "no sample yet"),
        ("UNKNOWN", "NVML_ERROR_UNKNOWN"),
    ],
)
def test_failed_call_is_unread_with_a_reason(error: str, reason: str) -> None:
    unread = {"gpu.ecc.enabled": reason, "gpu.ecc.enabled_next": reason}
    assert read_rows(GPU, {"nvmlDeviceGetEccMode": failed(error)}) == ({}, unread)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (3, None),
        (13, None),
        (4, "permission denied: run as root"),
        (10, "the driver timed out"),
        (15, "the GPU is lost"),
        (999, "NVML_ERROR_UNKNOWN"),
        (4711, "NVML_ERROR_4711"),
        ("x", "NVML_ERROR_UNKNOWN"),
        ([1], "NVML_ERROR_UNKNOWN"),
    ],
)
def test_a_field_value_fails_by_its_own_code(code: Any, reason: str | None) -> None:
    envelope = {"valueType": 1, "value": 0, "nvmlReturn": code}
    entries = replay_nvml(LaneState(), {"devices": [{"nvmlDeviceGetFieldValues(82,0)": envelope}]}).results
    signals, unread = read_rows(GPU, {entry.call: entry.result for entry in entries if entry.scope == 0})
    assert "gpu.memory.temperature" not in signals
    assert unread.get("gpu.memory.temperature") == reason


def test_field_result_is_unpacked_to_its_value() -> None:
    assert read_rows(GPU, {"nvmlDeviceGetFieldValues(230,0)": value(2, 1)}) == (
        {"gpu.recovery_action": 2},
        {},
    )


def test_a_link_is_read_by_its_own_number() -> None:
    calls = {f"nvmlDeviceGetFieldValues(161,{link})": value(link) for link in range(3)}
    assert read_rows(NVLINK, calls, 2) == ({"nvlink.replays": 2}, {})


def test_cluster_of_a_fabric_is_a_uuid() -> None:
    signals, _ = read_rows(GPU, {"nvmlDeviceGetGpuFabricInfoV": {"clusterUuid": [200, *range(15)]}})
    assert signals == {"gpu.fabric.cluster": "c8000102-0304-0506-0708-090a0b0c0d0e"}


def test_missing_field_of_an_older_struct_is_not_applicable() -> None:
    signals, unread = read_rows(
        GPU, {"nvmlDeviceGetGpuFabricInfoV": {"state": 3, "status": 0, "healthMask": 0}}
    )
    assert signals == {"gpu.fabric.state": 3, "gpu.fabric.status": 0, "gpu.fabric.health_mask": 0}
    assert unread == {}


# Whatever a driver or a recording may say.

ROWS = [*GPU, *NVLINK, *C2C]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-(1 << 63), 1 << 64, 10**400])
    | st.floats()
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["error", "value", "nvmlReturn"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def named(call: str) -> str:
    """A call of the table, of link 0, under its name in an answer."""
    call = call.replace("{link}", "0")
    if call.startswith("fields("):
        field, _, link = call.removeprefix("fields(").rstrip(")").partition(",")
        return f"nvmlDeviceGetFieldValues({field},{link or 0})"
    return call


def is_of_its_kind(row: Row, value: Scalar) -> bool:
    if row.signal.unit in {"celsius", "watts", "ratio", "seconds"}:
        return isinstance(value, float) and math.isfinite(value)
    if row.signal.kind in {"counter", "gauge"} or row.signal.unit == "bytes":
        return type(value) is int and value >= 0
    return isinstance(value, bool | int | str)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.signal.name)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_row_has_a_value_of_its_type_or_is_unread(row: Row, data: st.DataObject) -> None:
    results: dict[str, Any] = {}
    for call, item in row.calls:
        result = data.draw(JSON)
        if item is not None and data.draw(st.booleans()):
            result = [result] * 4 if isinstance(item, int) else {item: result}
        if call.startswith("fields(") and data.draw(st.booleans()):
            result = {"valueType": 1, "value": result, "nvmlReturn": 0}
        results[named(call)] = result
    signals, unread = read_rows((row,), results, 0)
    assert signals.keys() | unread.keys() <= {row.signal.name}
    assert not signals.keys() & unread.keys()
    assert all(is_of_its_kind(row, value) for value in signals.values())
    assert msgspec.msgpack.encode(signals)


@pytest.mark.parametrize(
    ("calls", "signal"),
    [
        ({"nvmlDeviceGetName": 7}, "gpu.name"),
        ({"nvmlDeviceGetName": "a\x1b[31m"}, "gpu.name"),
        ({"nvmlDeviceGetPersistenceMode": True}, "gpu.persistence"),
        ({"nvmlDeviceGetRemappedRows": [1, 2]}, "gpu.row_remap.pending"),
        ({"nvmlDeviceGetRemappedRows": [-1, 0, 0, 0]}, "gpu.row_remap.corrected"),
        ({"nvmlDeviceGetRetiredPages(1)": "abc"}, "gpu.retired_pages.uncorrected"),
        ({"nvmlDeviceGetMemoryInfo": 5}, "gpu.memory.total"),
        ({"nvmlDeviceGetGpuFabricInfoV": {"clusterUuid": [0, 256]}}, "gpu.fabric.cluster"),
        ({"nvmlDeviceGetGpuFabricInfoV": {"clusterUuid": [0, 1]}}, "gpu.fabric.cluster"),
        ({"nvmlDeviceGetMemoryInfo": {"total": 1 << 64}}, "gpu.memory.total"),
        ({"nvmlDeviceGetTemperatureV(0)": math.nan}, "gpu.temperature"),
        ({"nvmlDeviceGetFieldValues(189,0)": value(10**400)}, "gpu.power.limit_default"),
    ],
)
def test_invalid_text_is_unread_and_quoted_in_the_reason(calls: dict[str, Any], signal: str) -> None:
    signals, unread = read_rows(GPU, calls)
    assert signal not in signals
    assert " reads " in unread[signal]
    assert unread[signal].isprintable()
    assert len(unread[signal]) < 140


def test_result_of_a_link_has_its_number() -> None:
    assert read_rows(NVLINK, {"nvmlDeviceGetNvLinkState(7)": "on"}, 7)[1] == {
        "nvlink.active": "nvmlDeviceGetNvLinkState(7) reads 'on'"
    }


@pytest.mark.parametrize("convert", [row.convert for row in ROWS], ids=[row.signal.name for row in ROWS])
def test_boolean_is_not_accepted_as_a_value(convert: Callable[[Any], Scalar]) -> None:
    with pytest.raises((ValueError, TypeError)):
        convert(True)


COUNTERS = [row for row in (*GPU, *NVLINK) if row.signal.kind == "counter"]


@pytest.mark.parametrize("row", COUNTERS, ids=lambda row: row.signal.name)
def test_every_counter_has_a_highest_rate_and_refuses_all_ones(row: Row) -> None:
    assert row.signal.max_rate > 0
    for bits in (32, 64):
        with pytest.raises(ValueError, match=str((1 << bits) - 1)):
            row.convert((1 << bits) - 1)


def test_more_remapped_rows_than_a_gpu_has_are_unread() -> None:
    assert read_rows(GPU, {"nvmlDeviceGetRemappedRows": [0, 60000, 0, 0]})[1] == {
        "gpu.row_remap.uncorrected": "nvmlDeviceGetRemappedRows reads '[0, 60000, 0, 0]'"
    }


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("nvmlDeviceGetCurrPcieLinkGeneration", (0, -1, 63, 255, 65535)),
        ("nvmlDeviceGetMaxPcieLinkGeneration", (0, -1, 63, 255, 65535)),
        ("nvmlDeviceGetCurrPcieLinkWidth", (0, -1, 3, 63, 255, 65535)),
        ("nvmlDeviceGetMaxPcieLinkWidth", (0, -1, 63, 255, 65535)),
        ("nvmlDeviceGetCurrentClocksEventReasons", (-1, 63, 255, 65535, 1 << 31)),
        ("nvmlDeviceGetTemperature(0)", (-32768, 255, 65535, (1 << 31) - 1)),
        ("nvmlDeviceGetTemperatureThreshold(1)", (-1, 0, 63, 255, 65535)),
        ("nvmlDeviceGetPersistenceMode", (-1, 2, 63, 255)),
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", (-1, 2, 63, 255)),
    ],
)
def test_a_value_that_hardware_does_not_have_is_unread(call: str, values: tuple[int, ...]) -> None:
    for number in values:
        signals, unread = read_rows(GPU, {call: number})
        assert signals == {}
        assert unread
        assert all(f"{call} reads" in reason or f"{call}[0] reads" in reason for reason in unread.values())


def test_a_size_of_zero_is_no_size_of_a_memory() -> None:
    for size in (0, 65535, (1 << 20) - 1, (1 << 63) - 1):
        assert read_rows(GPU, {"nvmlDeviceGetMemoryInfo": {"total": size}})[0] == {}
    smallest = 128 << 20
    assert read_rows(GPU, {"nvmlDeviceGetMemoryInfo": {"total": smallest}})[0] == {
        "gpu.memory.total": smallest
    }


def test_an_implausible_state_of_the_fabric_is_unread() -> None:
    for number in (-1, 63, 255, 65535):
        fabric = {"state": number, "status": number, "healthSummary": number}
        unread = read_rows(GPU, {"nvmlDeviceGetGpuFabricInfoV": fabric})[1]
        assert {f"gpu.fabric.{name}" for name in ("state", "status", "health_summary")} <= unread.keys()


@pytest.mark.parametrize("clique", [-1, 65535, (1 << 31) - 1, (1 << 63) - 1])
def test_an_implausible_clique_is_unread(clique: int) -> None:
    assert "gpu.fabric.clique" in read_rows(GPU, {"nvmlDeviceGetGpuFabricInfoV": {"cliqueId": clique}})[1]


@pytest.mark.parametrize("action", [-1, 63, 255, 65535])
def test_an_implausible_recovery_action_is_unread(action: int) -> None:
    field = {"valueType": 1, "value": action, "nvmlReturn": 0}
    assert "gpu.recovery_action" in read_rows(GPU, {"nvmlDeviceGetFieldValues(230,0)": field})[1]


def test_a_rate_below_that_of_one_lane_is_no_rate_of_an_nvlink() -> None:
    field = "nvmlDeviceGetFieldValues(164,3)"
    for rate in (63, 255, 2499):
        assert "nvlink.speed" in read_rows(NVLINK, {field: value(rate)}, 3)[1]
    assert read_rows(NVLINK, {field: value(2500)}, 3) == ({"nvlink.speed": 2500}, {})
    # Of a link that is not trained.
    assert read_rows(NVLINK, {field: value(0)}, 3) == NOTHING


@pytest.mark.parametrize("distance", [-128, 63, 127])
def test_an_implausible_distance_of_the_slowdown_is_unread(distance: int) -> None:
    field = {"nvmlDeviceGetFieldValues(194,0)": value(distance, kind=5)}
    assert "gpu.temperature.slowdown_distance" in read_rows(GPU, field)[1]


@pytest.mark.parametrize("limit", [-1, 0, 63, 255, 999, 65535, (1 << 31) - 1])
def test_an_implausible_power_limit_is_unread(limit: int) -> None:
    fields = {f"nvmlDeviceGetFieldValues({field},0)": value(limit) for field in (189, 190)}
    assert {"gpu.power.limit", "gpu.power.limit_default"} <= read_rows(GPU, fields)[1].keys()
    fields = {f"nvmlDeviceGetFieldValues({field},0)": value(1000) for field in (189, 190)}
    assert read_rows(GPU, fields)[0] == {"gpu.power.limit": 1.0, "gpu.power.limit_default": 1.0}
