from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.nvml import (
    NvmlEvent,
    NvmlState,
    RecordedDevice,
    after_round,
    frame_document,
    read_base,
    read_frame,
)

LOST = {"error": "NVML_ERROR_GPU_IS_LOST"}


def base(document: Any) -> NvmlState:
    return read_base(json.dumps(document).encode(), "nvml.json")[0]


def frame(before: NvmlState, document: Any) -> NvmlState:
    return read_frame(before, json.dumps(document).encode(), "frames/1/nvml.json")[0]


def three() -> NvmlState:
    uuids = [{"nvmlDeviceGetUUID": f"GPU-{letter}", "nvmlDeviceGetMigMode": [0, 0]} for letter in "abc"]
    return base(
        {"system": {"nvmlSystemGetDriverVersion": "580.95.05", "nvmlDeviceGetCount": 3}, "devices": uuids}
    )


def uuids(nvml: NvmlState) -> list[str]:
    return [device.get("nvmlDeviceGetUUID", "") for device in nvml.document()["devices"]]


def test_the_base_is_shown_as_it_is_written() -> None:
    document = {
        "system": {
            "nvmlSystemGetDriverVersion": "580.95.05",
            "nvmlSystemGetConfComputeState": {"error": "stall"},
        },
        "devices": [
            {
                "nvmlDeviceGetNvLinkState(3)": 1,
                "nvmlDeviceGetTotalEccErrors(1,0)": 0,
                "nvmlDeviceGetFieldValues(230,0)": {"valueType": 1, "value": 0, "nvmlReturn": 0},
                "nvmlDeviceGetGpuFabricInfoV": {"state": 3, "clusterUuid": [0] * 16},
                "nvmlDeviceGetPowerUsage": 71.5,
                "nvmlDeviceGetRemappedRows": LOST,
            },
            LOST,
        ],
    }
    assert base(document).document() == document


def test_a_library_that_does_not_initialise_has_an_error_at_the_top() -> None:
    assert base({"error": "NVML_ERROR_DRIVER_NOT_LOADED"}).document() == {
        "system": {},
        "devices": [],
        "error": "NVML_ERROR_DRIVER_NOT_LOADED",
    }


def test_a_frame_merges_system_and_devices_by_call() -> None:
    after = frame(
        three(),
        {
            "system": {"nvmlSystemGetDriverVersion": "581.1", "nvmlDeviceGetCount": None},
            "devices": {"1": {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetNvLinkState(0)": 0}},
        },
    )
    document = after.document()
    assert document["system"] == {"nvmlSystemGetDriverVersion": "581.1"}
    assert document["devices"][1] == {
        "nvmlDeviceGetUUID": "GPU-b",
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetNvLinkState(0)": 0,
    }
    assert document["devices"][0] == three().document()["devices"][0]


def test_null_removes_a_device_and_later_devices_move_up() -> None:
    two = frame(three(), {"devices": {"1": None}})
    assert uuids(two) == ["GPU-a", "GPU-c"]
    again = frame(two, {"devices": {"2": {"nvmlDeviceGetUUID": "GPU-C"}}})
    assert uuids(again) == ["GPU-a", "GPU-C"]
    expected = ["GPU-a", "GPU-n", "GPU-C"]
    assert uuids(frame(again, {"devices": {"1": {"nvmlDeviceGetUUID": "GPU-n"}}})) == expected


def test_a_device_loses_its_handle_and_gets_it_back_with_what_it_answered() -> None:
    lost = frame(three(), {"devices": {"2": LOST}})
    assert lost.document()["devices"][2] == LOST
    back = frame(lost, {"devices": {"2": {"nvmlDeviceGetMigMode": [1, 1]}}})
    assert back.document()["devices"][2] == {"nvmlDeviceGetUUID": "GPU-c", "nvmlDeviceGetMigMode": [1, 1]}


def test_the_next_device_may_appear_and_no_other() -> None:
    assert uuids(
        frame(three(), {"devices": {"4": {"nvmlDeviceGetUUID": "e"}, "3": {"nvmlDeviceGetUUID": "d"}}})
    )[3:] == ["d", "e"]
    with pytest.raises(
        BundleError, match=r"devices\.4: there are 3 devices, numbered from 0: name one of them, or"
    ):
        frame(three(), {"devices": {"4": {}}})


def test_error_of_a_frame_lasts_until_a_frame_removes_it() -> None:
    failed = frame(three(), {"error": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"})
    assert frame(failed, {}).document()["error"] == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
    assert frame(failed, {"error": None}).document() == three().document()


def test_events_have_nvmls_own_index() -> None:
    events = [{"device": 2, "type": 8, "data": 79}, {"device": 1, "type": 8, "data": 48}]
    result = read_frame(
        three(), json.dumps({"devices": {"1": None}, "events": events}).encode(), "nvml.json"
    )[1]
    assert result == (NvmlEvent(1, 8, 79), NvmlEvent(1, 8, 48))
    first = read_base(
        json.dumps({"devices": [{}], "events": events[1:]}).replace('device": 1', 'device": 0').encode(), "f"
    )
    assert first[1] == (NvmlEvent(0, 8, 48),)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "expected `object`, got `array`"),
        ({"device": []}, "object contains unknown field `device`"),
        ({"devices": {"0": {}}}, "devices: expected `array`, got `object`"),
        ({"devices": [5]}, "devices[0]: expected `object`, got `int`"),
        (
            {"devices": [{"error": "LOST"}]},
            "devices[0].error: 'LOST' is not a known failure: write an NVML_ERROR_… name",
        ),
        ({"devices": [{"error": []}]}, "devices[0].error: [] is not a known failure"),
        ({"devices": [{**LOST, "nvmlX": 1}]}, "devices[0]: has an error and values"),
        (
            {"devices": [{"nvmlDeviceGetNvLinkState(3, 1)": 1}]},
            "devices[0].nvmlDeviceGetNvLinkState(3, 1): is not the name of",
        ),
        (
            {"devices": [{"DeviceGetUUID": 1}]},
            "devices[0].DeviceGetUUID: is not the name of a call: write pynvml's name",
        ),
        ({"devices": [{"nvmlDeviceGetUUID": None}]}, "devices[0].nvmlDeviceGetUUID: has no result"),
        (
            {"devices": [{"nvmlDeviceGetUUID": {"error": "EIO"}}]},
            "devices[0].nvmlDeviceGetUUID.error: 'EIO' is not a known",
        ),
        ({"system": {"x": 1}}, "system.x: is not the name of a call"),
        ({"system": 5}, "system: expected `object`, got `int`"),
        ({"error": "broken"}, "error: 'broken' is not a known failure"),
        ({"error": None}, "error: expected `str`, got `null`"),
        ({"events": [{"device": 0, "type": 8, "data": 79}]}, "events[0].device: there is no device 0"),
        ({"events": [{"device": 0, "type": 8}]}, "events[0]: object missing required field `data`"),
        ({"events": [{"device": -1, "type": 8, "data": 1}]}, "events[0].device: expected `int` >= 0"),
        (
            {"events": [{"device": 0, "type": 8, "data": 1, "at": 5}]},
            "events[0]: object contains unknown field `at`",
        ),
    ],
)
def test_a_base_of_another_shape_is_refused(document: Any, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        base(document)
    assert str(refused.value).startswith(f"nvml.json: {message}")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"devices": []}, "devices: expected `object`, got `array`"),
        ({"devices": {"x": {}}}, "devices.x: there are 3 devices, numbered from 0"),
        ({"devices": {"01": {}}}, "devices.01: there are 3 devices"),
        ({"devices": {"9" * 5000: {}}}, "devices.999"),
        ({"devices": {"0": 5}}, "devices: expected `object | null`, got `int`"),
        ({"devices": {"0": {"nvmlX Y": 1}}}, "devices.0.nvmlX Y: is not the name of a call"),
    ],
)
def test_a_frame_of_another_shape_is_refused(document: Any, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        frame(three(), document)
    assert str(refused.value).startswith(f"frames/1/nvml.json: {message}")


def test_calls_of_a_device_without_a_handle_are_hidden() -> None:
    assert NvmlState(devices={0: RecordedDevice({"nvmlX": 1}, "NVML_ERROR_GPU_IS_LOST")}).document()[
        "devices"
    ] == [LOST]


def test_a_round_becomes_what_nvml_answered() -> None:
    state = after_round(
        NvmlState(),
        [
            (-1, "nvmlSystemGetDriverVersion", "580.95.05"),
            (-1, "nvmlDeviceGetCount", 3),
            (0, "nvmlDeviceGetUUID", "GPU-a"),
            (1, "nvmlDeviceGetHandleByIndex", LOST),
            (2, "nvmlDeviceGetUUID", "GPU-c"),
            (2, "nvmlDeviceGetName", {"error": "worker died: signal 11"}),
            (2, "nvmlDeviceGetSerial", None),
        ],
    )
    assert state.document() == {
        "system": {"nvmlSystemGetDriverVersion": "580.95.05", "nvmlDeviceGetCount": 3},
        "devices": [
            {"nvmlDeviceGetUUID": "GPU-a"},
            LOST,
            {"nvmlDeviceGetUUID": "GPU-c", "nvmlDeviceGetName": {"error": "NVML_ERROR_UNKNOWN"}},
        ],
    }


def test_round_updates_its_calls_and_removes_devices_beyond_the_count() -> None:
    first = after_round(NvmlState(), [(0, "nvmlDeviceGetUUID", "a"), (1, "nvmlDeviceGetUUID", "b")])
    lost = after_round(first, [(1, "nvmlDeviceGetHandleByIndex", LOST)])
    assert lost.document()["devices"] == [{"nvmlDeviceGetUUID": "a"}, LOST]
    single = after_round(lost, [(-1, "nvmlDeviceGetCount", 1)])
    assert [device.get("nvmlDeviceGetUUID") for device in single.document()["devices"]] == ["a"]
    failed = after_round(single, [(-1, "nvmlInit", {"error": "NVML_ERROR_DRIVER_NOT_LOADED"})])
    assert failed.document()["error"] == "NVML_ERROR_DRIVER_NOT_LOADED"
    assert "error" not in after_round(failed, [(0, "nvmlDeviceGetUUID", "a")]).document()


def test_device_without_calls_has_no_handle() -> None:
    assert after_round(NvmlState(), [(1, "nvmlDeviceGetUUID", "b")]).document()["devices"] == [
        {"error": "NVML_ERROR_UNKNOWN"},
        {"nvmlDeviceGetUUID": "b"},
    ]


results = st.sampled_from([0, 1, "x", [1, 2], {"state": 3}, LOST, None])
entries = st.one_of(
    st.tuples(st.integers(0, 3), st.sampled_from(["nvmlA", "nvmlB(1,0)"]), results),
    st.tuples(st.integers(0, 3), st.just("nvmlDeviceGetHandleByIndex"), st.just(LOST)),
    st.tuples(st.just(-1), st.just("nvmlDeviceGetCount"), st.integers(0, 4)),
    st.tuples(st.just(-1), st.just("nvmlInit"), st.just({"error": "NVML_ERROR_UNKNOWN"})),
)


@settings(deadline=None)
@given(st.lists(st.lists(entries), min_size=1, max_size=4))
def test_rounds_are_read_back_from_base_and_frames(rounds: list[list[tuple[int, str, Any]]]) -> None:
    state = after_round(NvmlState(), rounds[0])
    read = read_base(json.dumps(state.document()).encode(), "nvml.json")[0]
    for entries in rounds[1:]:
        after = after_round(state, entries)
        read = read_frame(read, json.dumps(frame_document(state, after)).encode(), "nvml.json")[0]
        state = after
        assert read.document() == state.document()
