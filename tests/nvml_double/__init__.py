"""A double of libnvidia-ml: a real shared library that answers as a bundle's nvml.json says.

It does not know NVML's structs: what each call fills its outputs with is worked out here, with
pynvml's own declarations, and written beside the library as a table (its format stands in double.c).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nodeguard.worker.nvml_json import NAMES

_SOURCE = Path(__file__).parent / "double.c"
_CODES = {name: str(code) for code, name in NAMES.items()} | {
    "stall": "hang",
    "hang": "hang",
    "crash": "crash",
}

_UINT, _ULL = ctypes.c_uint, ctypes.c_ulonglong

# What the outputs of a call are; a call that is not named here fills one unsigned int, or a text.
_OUTPUTS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetGspFirmwareMode": (_UINT, _UINT),
    "nvmlDeviceGetEccMode": (_UINT, _UINT),
    "nvmlDeviceGetMigMode": (_UINT, _UINT),
    "nvmlDeviceGetRemappedRows": (_UINT,) * 4,
    "nvmlDeviceGetTotalEccErrors": (_ULL,),
    "nvmlDeviceGetMemoryErrorCounter": (_ULL,),
    "nvmlDeviceGetCurrentClocksEventReasons": (_ULL,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (_ULL,),
}
# Calls that fill a struct; all fields are the result.
_STRUCTS: dict[str, Any] = {
    "nvmlSystemGetConfComputeState": pynvml.c_nvmlConfComputeSystemState_t,
    "nvmlDeviceGetPciInfo_v3": pynvml.nvmlPciInfo_t,
    "nvmlDeviceGetMemoryInfo": pynvml.c_nvmlMemory_t,
    "nvmlDeviceGetPlatformInfo": pynvml.c_nvmlPlatformInfo_v2_t,
    "nvmlDeviceGetRowRemapperHistogram": pynvml.c_nvmlRowRemapperHistogramValues,
    "nvmlDeviceGetSramEccErrorStatus": pynvml.c_nvmlEccSramErrorStatus_v1_t,
    "nvmlDeviceGetUtilizationRates": pynvml.c_nvmlUtilization_t,
    "nvmlDeviceGetGpuFabricInfo": pynvml.c_nvmlGpuFabricInfo_t,
    "nvmlDeviceGetGpuFabricInfoV": pynvml.c_nvmlGpuFabricInfo_v3_t,
}
# Calls that fill a struct with a version, of which pynvml returns these fields.
_WRAPPED: dict[str, tuple[Any, int, tuple[str, ...]]] = {
    "nvmlDeviceGetTemperatureV": (pynvml.c_nvmlTemperature_v1_t, pynvml.nvmlTemperature_v1, ("temperature",)),
    "nvmlDeviceGetMarginTemperature": (
        pynvml.c_nvmlMarginTemperature_v1_t,
        pynvml.nvmlMarginTemperature_v1,
        ("marginTemperature",),
    ),
    "nvmlDeviceGetRepairStatus": (
        pynvml.c_nvmlRepairStatus_t,
        pynvml.nvmlRepairStatus_v1,
        ("bChannelRepairPending", "bTpcRepairPending"),
    ),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": (
        pynvml.c_nvmlUnrepairableMemory_v1_t,
        pynvml.nvmlUnrepairableMemory_v1,
        ("unrepairableMemory",),
    ),
}
# Plain names under which a recording may have what pynvml asks by a versioned one.
_NEWER = {
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
}


def _filled(kind: Any, fields: Mapping[str, Any]) -> bytes:
    struct = kind()
    for name, value in fields.items():
        place = getattr(kind, name)
        if isinstance(value, str | list):
            raw = value.encode() if isinstance(value, str) else bytes(value)
            ctypes.memmove(ctypes.addressof(struct) + place.offset, raw, len(raw))
        elif dict(kind._fields_)[name] is ctypes.c_char:
            setattr(struct, name, bytes([value]))
        else:
            setattr(struct, name, value)
    return bytes(struct)


def _processes(processes: list[dict[str, Any]]) -> tuple[bytes, bytes]:
    unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    rows = [row | {"usedGpuMemory": row["usedGpuMemory"] or unknown} for row in processes]
    return bytes(_UINT(len(rows))), b"".join(_filled(pynvml.c_nvmlProcessInfo_v3_t, row) for row in rows)


# Structs by the version that they begin with, besides those above: what older drivers fill.
_OLDER: dict[tuple[str, int], Any] = {
    ("nvmlDeviceGetGpuFabricInfoV", pynvml.nvmlGpuFabricInfo_v2): pynvml.c_nvmlGpuFabricInfo_v2_t,
    ("nvmlDeviceGetPlatformInfo", pynvml.nvmlPlatformInfo_v1): pynvml.c_nvmlPlatformInfo_v1_t,
}


def _outputs(name: str, arguments: str, result: Any) -> tuple[bytes, ...]:
    """Memory that each output of a call is filled with, so that pynvml returns this result."""
    if name == "nvmlDeviceGetFieldValues":
        kind = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[result["valueType"]]
        value = pynvml.c_nvmlValue_t(**{kind: result["value"]})
        return bytes(_UINT(result["valueType"])), bytes(value)
    if name == "nvmlDeviceGetComputeRunningProcesses_v3":
        return _processes(result)
    if name == "nvmlDeviceGetRetiredPages":
        return bytes(_UINT(len(result))), b"".join(bytes(_ULL(page)) for page in result)
    if name == "nvmlDeviceGetRetiredPages_v2":
        columns = (b"".join(bytes(_ULL(row[key])) for row in result) for key in ("address", "timestamp"))
        return bytes(_UINT(len(result))), *columns
    if name in _WRAPPED:
        kind, version, fields = _WRAPPED[name]
        returned = dict(zip(fields, result if isinstance(result, list) else [result], strict=True))
        sensor = {"sensorType": int(arguments)} if arguments else {}
        return (_filled(kind, {"version": version, **sensor, **returned}),)
    if name in _STRUCTS:
        kind = _OLDER.get((name, result.get("version", 0)), _STRUCTS[name])
        return (_filled(kind, result),)
    if isinstance(result, str):
        return (result.encode(errors="surrogateescape") + b"\0",)
    kinds = _OUTPUTS.get(name, (_UINT,))
    values = result if isinstance(result, list) else [result]
    return tuple(bytes(kind(value)) for kind, value in zip(kinds, values, strict=True))


def _row(scope: int, call: str, result: Any) -> str:
    name, _, arguments = call.rstrip(")").partition("(")
    key = f"{scope} {_NEWER.get(name, name)}{call[len(name) :]}"
    if isinstance(result, dict) and "error" in result:
        return f"{key} {_CODES.get(result['error'], result['error'])}"
    if isinstance(result, dict) and result.get("nvmlReturn"):
        return f"{key} {result['nvmlReturn']}"
    memory = (output.hex() or "-" for output in _outputs(_NEWER.get(name, name), arguments, result))
    return " ".join((key, "0", *memory))


def _rows(nvml: Mapping[str, Any]) -> Iterator[str]:
    if "error" in nvml:
        yield _row(-1, "nvmlInit", nvml)
    devices = nvml.get("devices", [])
    for call, result in {"nvmlDeviceGetCount": len(devices), **nvml.get("system", {})}.items():
        yield _row(-1, call, result)
    for index, device in enumerate(devices):
        calls = {"nvmlDeviceGetHandleByIndex": device} if "error" in device else device
        for call, result in calls.items():
            yield _row(index, call, result)


class Double:
    """A library of its own in a directory. path: the library. without: functions that it lacks."""

    def __init__(self, built: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "libnvidia-ml.so.1"
        shutil.copy(built, self.path)
        os.mkfifo(directory / "events")
        self._events = os.open(directory / "events", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.answer({})

    def answer(self, nvml: Mapping[str, Any]) -> None:
        """Answer from now on as this nvml.json says.

        Besides errors, a result may be `crash`, or the path of a file system: the call asks it and waits.
        """
        rows = sorted(_rows(nvml), key=lambda row: row.split(" ", 2)[:2])
        # Two generations at once, so that no inode comes twice in a row: by it the double sees another file.
        new = self.path.parent / "answers.new"
        new.write_text("".join(f"{row}\n" for row in rows))
        new.replace(self.path.parent / "answers.txt")

    def tell(self, device: int | str, type_: int, data: int = 0) -> None:
        """Let an event happen; of the device `error`, a wait for events ends with the type as its code."""
        os.write(self._events, f"{device} {type_} {data}\n".encode())

    def close(self) -> None:
        os.close(self._events)


Build = Callable[..., Double]


def compiled(library: Path, without: Iterable[str] = ()) -> Path:
    """Compiles the double without some functions. Raises FileNotFoundError where there is no cc."""
    renamed = [f"-D{name}=absent_{name}" for name in without]
    options = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *renamed]
    subprocess.run(["cc", *options, "-o", str(library), str(_SOURCE)], check=True)
    return library


@pytest.fixture(scope="session")
def nvml_builds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """Compiles the double without some functions, once for each such set; skips where no compiler is."""
    built: dict[tuple[str, ...], Path] = {}

    def build(without: tuple[str, ...]) -> Path:
        if shutil.which("cc") is None:
            pytest.skip("the double of libnvidia-ml needs a C compiler (cc)")
        if without not in built:
            built[without] = compiled(tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1", without)
        return built[without]

    return build


@pytest.fixture
def nvml_double(nvml_builds: Callable[[tuple[str, ...]], Path], tmp_path: Path) -> Iterator[Build]:
    """Makes doubles: `nvml_double(nvml_json, without=(…), directory=…)`."""
    made: list[Double] = []

    def make(nvml: Mapping[str, Any], without: tuple[str, ...] = (), directory: Path | None = None) -> Double:
        double = Double(nvml_builds(without), directory or tmp_path / "nvml")
        made.append(double)
        double.answer(nvml)
        return double

    yield make
    for double in made:
        double.close()
