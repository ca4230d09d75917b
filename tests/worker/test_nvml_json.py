from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.worker.nvml_json import NAMES, as_json, failure, field_result


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (3, 3),
        (None, None),
        ("580.95.05", "580.95.05"),
        (b"S\xff", "S\ufffd"),
        ((1, 0, True, 0), [1, 0, True, 0]),
        ([{"address": 1, "timestamp": 2}], [{"address": 1, "timestamp": 2}]),
        (pynvml.nvmlFriendlyObject({"pid": 1, "usedGpuMemory": None}), {"pid": 1, "usedGpuMemory": None}),
    ],
)
def test_results_of_pynvml(returned: Any, result: Any) -> None:
    assert as_json(returned) == result


def test_a_struct_becomes_its_fields() -> None:
    assert as_json(pynvml.c_nvmlUtilization_t(gpu=97, memory=3)) == {"gpu": 97, "memory": 3}


def test_bytes_that_are_no_text_are_read_whole() -> None:
    info = pynvml.c_nvmlPlatformInfo_v2_t()
    raw = bytes([0x12, 0, 0xFF, *range(13)])
    ctypes.memmove(ctypes.addressof(info) + type(info).ibGuid.offset, raw, 16)
    info.slotNumber = b"\xf5"
    info.chassisSerialNumber = b"1820"
    result = as_json(info)
    assert result["ibGuid"] == list(raw)
    assert result["slotNumber"] == 0xF5
    assert result["trayIndex"] == 0
    assert result["chassisSerialNumber"] == "1820"


def test_text_of_a_struct_may_be_invalid_utf8() -> None:
    info = pynvml.nvmlPciInfo_t()
    info.busId = b"0000\xff"
    assert as_json(info)["busId"] == "0000\ufffd"


def _field(kind: int, member: str, number: float, code: int = 0) -> Any:
    field = pynvml.c_nvmlFieldValue_t(valueType=kind, nvmlReturn=code)
    setattr(field.value, member, number)
    return field


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_signed_values_stay_signed(number: int) -> None:
    assert field_result(_field(5, "siVal", number)) == {"valueType": 5, "value": number, "nvmlReturn": 0}
    assert field_result(_field(4, "sllVal", number))["value"] == number


@given(st.integers(0, (1 << 64) - 1))
def test_unsigned_values_stay_unsigned(number: int) -> None:
    assert field_result(_field(3, "ullVal", number))["value"] == number
    assert field_result(_field(1, "uiVal", number & 0xFFFFFFFF))["value"] == number & 0xFFFFFFFF


def test_a_number_that_is_not_finite_is_none() -> None:
    assert field_result(_field(0, "dVal", float("nan")))["value"] is None
    assert field_result(_field(0, "dVal", 0.5))["value"] == 0.5


def test_a_failed_field_is_an_error() -> None:
    assert field_result(_field(3, "ullVal", 0, code=15)) == {"error": "NVML_ERROR_GPU_IS_LOST"}
    assert field_result(_field(3, "ullVal", 0, code=77)) == {"error": "NVML_ERROR_77"}
    assert field_result(_field(12, "ullVal", 0)) == {"error": "NVML_ERROR_UNKNOWN"}


def test_names_are_those_of_pynvml() -> None:
    theirs = {
        code: name
        for name, code in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(code, int)
    }
    assert theirs.items() <= NAMES.items()


def test_an_unknown_code_keeps_its_number() -> None:
    assert failure(15) == {"error": "NVML_ERROR_GPU_IS_LOST"}
    assert failure(31) == {"error": "NVML_ERROR_31"}
