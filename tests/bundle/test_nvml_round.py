from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.nvml import NvmlState, after_round, frame_document, read_base, read_frame

LOST = {"error": "NVML_ERROR_GPU_IS_LOST"}


def test_a_round_becomes_what_nvml_answered() -> None:
    told = after_round(
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
    assert told.document() == {
        "system": {"nvmlSystemGetDriverVersion": "580.95.05", "nvmlDeviceGetCount": 3},
        "devices": [
            {"nvmlDeviceGetUUID": "GPU-a"},
            LOST,
            {"nvmlDeviceGetUUID": "GPU-c", "nvmlDeviceGetName": {"error": "NVML_ERROR_UNKNOWN"}},
        ],
    }


def test_the_next_round_changes_what_it_asked_and_drops_what_is_beyond_the_count() -> None:
    first = after_round(NvmlState(), [(0, "nvmlDeviceGetUUID", "a"), (1, "nvmlDeviceGetUUID", "b")])
    lost = after_round(first, [(1, "nvmlDeviceGetHandleByIndex", LOST)])
    assert lost.document()["devices"] == [{"nvmlDeviceGetUUID": "a"}, LOST]
    one = after_round(lost, [(-1, "nvmlDeviceGetCount", 1)])
    assert [device.get("nvmlDeviceGetUUID") for device in one.document()["devices"]] == ["a"]
    failed = after_round(one, [(-1, "nvmlInit", {"error": "NVML_ERROR_DRIVER_NOT_LOADED"})])
    assert failed.document()["error"] == "NVML_ERROR_DRIVER_NOT_LOADED"
    assert "error" not in after_round(failed, [(0, "nvmlDeviceGetUUID", "a")]).document()


def test_a_device_that_was_never_asked_has_no_handle() -> None:
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
    told = after_round(NvmlState(), rounds[0])
    read = read_base(json.dumps(told.document()).encode(), "nvml.json")[0]
    for entries in rounds[1:]:
        after = after_round(told, entries)
        read = read_frame(read, json.dumps(frame_document(told, after)).encode(), "nvml.json")[0]
        told = after
        assert read.document() == told.document()
