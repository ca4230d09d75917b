"""Table of NVML signals: the call that returns each signal of a GPU or of one of its NVLinks.

A row: the signal, its type of value, its call, and its meaning. `CALL[0]` and `CALL.name` are an item of the
result of a call; of calls separated by ` | ` the first that does not fail counts. `fields(N)` is a field
value, nvmlDeviceGetFieldValues, by its NVML_FI_DEV_* number; `{link}` is the number of an NVLink.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from msgspec import Struct

from nodeguard.model.signal import Scalar, Signal, SignalKind


class Row(Struct, frozen=True):
    """One signal and its source.

    calls: in the order in which they are tried, each with the item of its result. convert: returns the value
    of the signal; raises ValueError, TypeError or OverflowError for an implausible one.
    """

    signal: Signal
    calls: tuple[tuple[str, int | str | None], ...]
    convert: Callable[[Any], Scalar]


class ValueType(Struct, frozen=True):
    """A type of value: kind and unit of the signal, and the conversion of a result."""

    kind: SignalKind
    convert: Callable[[Any], Scalar]
    unit: str = ""


def _text(value: Any) -> str:
    if not str.isprintable(value):
        raise ValueError(value)
    return str(value)[:200]


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(value)
    if value in _NOT_AVAILABLE:
        raise ValueError(value)
    return value


def _count(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError(value)
    return int(value)


# All ones in 32 or 64 bits: NVML_VALUE_NOT_AVAILABLE (nvml.h), or a read from a device that does not answer.
_NOT_AVAILABLE = frozenset({(1 << 32) - 1, (1 << 64) - 1})


def _scaled(by: float) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        if type(value) not in {int, float}:
            raise TypeError(value)
        if value in _NOT_AVAILABLE:
            raise ValueError(value)
        scaled = float(value * by)
        if not isfinite(scaled):
            raise ValueError(value)
        return scaled

    return convert


def _length(value: Any) -> int:
    if type(value) is not list:
        raise TypeError(value)
    return len(value)


def _bit(mask: int) -> ValueType:
    return ValueType("state", lambda value: bool(_count(value) & mask))


_TEXT = ValueType("state", _text)
_NUMBER = ValueType("state", _whole)
_TRUTH = ValueType("state", lambda value: _whole(value) != 0)
_LENGTH = ValueType("state", _length)
_COUNTER = ValueType("counter", _count)
_GAUGE = ValueType("gauge", _count)
_BYTES = ValueType("state", _count, "bytes")
_CELSIUS = ValueType("gauge", _scaled(1), "celsius")
_LIMIT = ValueType("state", _scaled(1), "celsius")
_MILLIWATTS = ValueType("gauge", _scaled(1e-3), "watts")
_PERCENT = ValueType("gauge", _scaled(1e-2), "ratio")
_NANOSECONDS = ValueType("counter", _scaled(1e-9), "seconds")

_CALL = re.compile(r"(\w+(?:\([^)]*\))?)(?:\[(\d+)\]|\.(\w+))?")


def _rows(*rows: tuple[str, ValueType, str, str]) -> tuple[Row, ...]:
    return tuple(
        Row(
            Signal(name, value_type.kind, about, value_type.unit),
            tuple(map(_item, calls.split(" | "))),
            value_type.convert,
        )
        for name, value_type, calls, about in rows
    )


def _item(call: str) -> tuple[str, int | str | None]:
    match = _CALL.fullmatch(call)
    if match is None:
        raise ValueError(call)
    return match[1], int(match[2]) if match[2] else match[3]


_CLOCKS = "nvmlDeviceGetCurrentClocksEventReasons | nvmlDeviceGetCurrentClocksThrottleReasons"
_PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3 | nvmlDeviceGetComputeRunningProcesses"
_TEMPERATURE = "nvmlDeviceGetTemperatureV(0) | nvmlDeviceGetTemperature(0)"
_PLACES = (
    ("l1", 0, "the L1 cache"),
    ("l2", 1, "the L2 cache"),
    ("dram", 2, "device memory"),
    ("register_file", 3, "the register file"),
    ("cbu", 6, "the convergence barrier unit"),
    ("sram", 7, "SRAM"),
)
_SPARES = (
    ("max", "all spare rows left"),
    ("high", "most spare rows left"),
    ("partial", "some spare rows left"),
    ("low", "few spare rows left"),
    ("none", "no spare row left"),
)


def _fabric(field: str) -> str:
    return f"nvmlDeviceGetGpuFabricInfoV.{field} | nvmlDeviceGetGpuFabricInfo.{field}"


def _retired(cause: int) -> str:
    return f"nvmlDeviceGetRetiredPages_v2({cause}) | nvmlDeviceGetRetiredPages({cause})"


GPU = _rows(
    ("gpu.name", _TEXT, "nvmlDeviceGetName", "model"),
    ("gpu.vbios", _TEXT, "nvmlDeviceGetVbiosVersion", "VBIOS version"),
    ("gpu.board", _TEXT, "nvmlDeviceGetBoardPartNumber", "board part number"),
    ("gpu.module", _NUMBER, "nvmlDeviceGetModuleId", "number of the SXM socket"),
    ("gpu.chassis", _TEXT, "nvmlDeviceGetPlatformInfo.chassisSerialNumber", "serial of the chassis"),
    ("gpu.tray", _NUMBER, "nvmlDeviceGetPlatformInfo.trayIndex", "index of the tray in the chassis"),
    ("gpu.gsp", _TRUTH, "nvmlDeviceGetGspFirmwareMode[0]", "whether GSP firmware runs"),
    (
        "gpu.persistence",
        _TRUTH,
        "nvmlDeviceGetPersistenceMode",
        "whether the driver stays initialised without clients",
    ),
    ("gpu.memory.total", _BYTES, "nvmlDeviceGetMemoryInfo.total", "memory"),
    ("gpu.recovery_action", _NUMBER, "fields(230)", "what the driver wants done, by number"),
    ("gpu.ecc.enabled", _TRUTH, "nvmlDeviceGetEccMode[0]", "whether ECC is on"),
    ("gpu.ecc.enabled_next", _TRUTH, "nvmlDeviceGetEccMode[1]", "whether ECC is on after the next reset"),
    (
        "gpu.ecc.corrected",
        _COUNTER,
        "nvmlDeviceGetTotalEccErrors(0,0)",
        "corrected errors since the driver was loaded",
    ),
    (
        "gpu.ecc.uncorrected",
        _COUNTER,
        "nvmlDeviceGetTotalEccErrors(1,0)",
        "uncorrected errors since the driver was loaded",
    ),
    ("gpu.ecc.corrected_lifetime", _COUNTER, "nvmlDeviceGetTotalEccErrors(0,1)", "corrected errors ever"),
    ("gpu.ecc.uncorrected_lifetime", _COUNTER, "nvmlDeviceGetTotalEccErrors(1,1)", "uncorrected errors ever"),
    *(
        (
            f"gpu.ecc.{place}.{name}",
            _COUNTER,
            f"nvmlDeviceGetMemoryErrorCounter({kind},0,{number})",
            f"{name} errors in {where}",
        )
        for place, number, where in _PLACES
        for kind, name in enumerate(("corrected", "uncorrected"))
    ),
    (
        "gpu.ecc.sram_threshold_exceeded",
        _TRUTH,
        "nvmlDeviceGetSramEccErrorStatus.bThresholdExceeded",
        "whether SRAM has too many distinct uncorrected errors",
    ),
    (
        "gpu.row_remap.corrected",
        _COUNTER,
        "nvmlDeviceGetRemappedRows[0]",
        "rows remapped for corrected errors",
    ),
    (
        "gpu.row_remap.uncorrected",
        _COUNTER,
        "nvmlDeviceGetRemappedRows[1]",
        "rows remapped for uncorrected errors",
    ),
    ("gpu.row_remap.pending", _TRUTH, "nvmlDeviceGetRemappedRows[2]", "whether a remap waits for a reset"),
    ("gpu.row_remap.failed", _TRUTH, "nvmlDeviceGetRemappedRows[3]", "whether a remap has ever failed"),
    *(
        (
            f"gpu.row_remap.banks_{share}",
            _GAUGE,
            f"nvmlDeviceGetRowRemapperHistogram.{share}",
            f"memory banks with {words}",
        )
        for share, words in _SPARES
    ),
    ("gpu.retired_pages.corrected", _LENGTH, _retired(0), "pages retired for corrected errors"),
    ("gpu.retired_pages.uncorrected", _LENGTH, _retired(1), "pages retired for uncorrected errors"),
    (
        "gpu.retired_pages.pending",
        _TRUTH,
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "whether a page waits to be retired",
    ),
    (
        "gpu.repair.channel_pending",
        _TRUTH,
        "nvmlDeviceGetRepairStatus[0]",
        "whether a memory channel's repair waits for a reset",
    ),
    (
        "gpu.repair.tpc_pending",
        _TRUTH,
        "nvmlDeviceGetRepairStatus[1]",
        "whether a compute unit's repair waits for a reset",
    ),
    (
        "gpu.memory.unrepairable",
        _TRUTH,
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "whether memory can no longer be repaired",
    ),
    ("gpu.clocks.idle", _bit(0x1), _CLOCKS, "clocks are low for want of work"),
    ("gpu.clocks.power_cap", _bit(0x4), _CLOCKS, "clocks are held down by the software power cap"),
    ("gpu.clocks.hw_slowdown", _bit(0x8), _CLOCKS, "hardware slows the clocks"),
    ("gpu.clocks.sw_thermal", _bit(0x20), _CLOCKS, "software slows the clocks for heat"),
    ("gpu.clocks.hw_thermal", _bit(0x40), _CLOCKS, "hardware slows the clocks for heat"),
    ("gpu.clocks.power_brake", _bit(0x80), _CLOCKS, "the board's power supply slows the clocks"),
    ("gpu.clocks.sw_thermal_time", _NANOSECONDS, "fields(269)", "time slowed by software for heat"),
    ("gpu.clocks.hw_thermal_time", _NANOSECONDS, "fields(270)", "time slowed by hardware for heat"),
    ("gpu.clocks.power_brake_time", _NANOSECONDS, "fields(271)", "time slowed by the power supply"),
    ("gpu.utilization", _PERCENT, "nvmlDeviceGetUtilizationRates.gpu", "share of time in which a kernel ran"),
    ("gpu.temperature", _CELSIUS, _TEMPERATURE, "temperature"),
    (
        "gpu.temperature.limit_distance",
        _CELSIUS,
        "nvmlDeviceGetMarginTemperature",
        "degrees left to the thermal limit, negative above it",
    ),
    (
        "gpu.temperature.slowdown_distance",
        _LIMIT,
        "fields(194)",
        "distance to the limit at which clocks slow down",
    ),
    (
        "gpu.temperature.slowdown",
        _LIMIT,
        "nvmlDeviceGetTemperatureThreshold(1)",
        "temperature at which clocks slow down",
    ),
    ("gpu.memory.temperature", _CELSIUS, "fields(82)", "temperature of the memory"),
    (
        "gpu.memory.temperature_max",
        _LIMIT,
        "nvmlDeviceGetTemperatureThreshold(2)",
        "highest temperature at which the memory runs at full speed",
    ),
    ("gpu.power.limit", _MILLIWATTS, "fields(190)", "power limit that is enforced"),
    ("gpu.power.limit_default", _MILLIWATTS, "fields(189)", "power limit at boot"),
    ("gpu.power.smoothing_life", _PERCENT, "fields(258)", "life left in the power-smoothing circuit"),
    ("gpu.pcie.gen", _GAUGE, "nvmlDeviceGetCurrPcieLinkGeneration", "PCIe generation of the link now"),
    ("gpu.pcie.gen_max", _NUMBER, "nvmlDeviceGetMaxPcieLinkGeneration", "highest that GPU and slot can do"),
    ("gpu.pcie.width", _NUMBER, "nvmlDeviceGetCurrPcieLinkWidth", "PCIe lanes now"),
    ("gpu.pcie.width_max", _NUMBER, "nvmlDeviceGetMaxPcieLinkWidth", "most lanes that GPU and slot can do"),
    ("gpu.pcie.replays", _COUNTER, "nvmlDeviceGetPcieReplayCounter", "PCIe replays"),
    ("gpu.pcie.replay_rollovers", _COUNTER, "fields(95)", "PCIe replay counter roll-overs"),
    ("gpu.pcie.correctable", _COUNTER, "fields(173)", "correctable PCIe errors"),
    ("gpu.pcie.nonfatal", _COUNTER, "fields(179)", "non-fatal PCIe errors"),
    ("gpu.pcie.fatal", _COUNTER, "fields(180)", "fatal PCIe errors"),
    ("gpu.nvlink.count", _NUMBER, "fields(91)", "NVLinks that the GPU has"),
    ("gpu.c2c.count", _NUMBER, "fields(170)", "links that the GPU has to its CPU"),
    (
        "gpu.fabric.state",
        _NUMBER,
        _fabric("state"),
        "registration: 0 not supported, 1 not started, 2 in progress, 3 completed",
    ),
    ("gpu.fabric.status", _NUMBER, _fabric("status"), "NVML return code of the registration"),
    (
        "gpu.fabric.health_summary",
        _NUMBER,
        _fabric("healthSummary"),
        "0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity",
    ),
    ("gpu.fabric.health_mask", _NUMBER, _fabric("healthMask"), "fabric health, two to four bits a field"),
    ("gpu.mig.enabled", _TRUTH, "nvmlDeviceGetMigMode[0]", "whether MIG is on"),
    ("gpu.mig.enabled_next", _TRUTH, "nvmlDeviceGetMigMode[1]", "whether MIG is on after the next reset"),
    ("gpu.processes", _LENGTH, _PROCESSES, "compute processes"),
)

NVLINK = _rows(
    ("nvlink.active", _TRUTH, "nvmlDeviceGetNvLinkState({link})", "whether the link is active"),
    ("nvlink.speed", _NUMBER, "fields(164,{link})", "raw signalling rate, MB/s"),
    ("nvlink.sleeping", _TRUTH, "fields(167,{link})", "whether the link sleeps for want of traffic"),
    ("nvlink.replays", _COUNTER, "fields(161,{link})", "replays"),
    ("nvlink.recoveries", _COUNTER, "fields(162,{link})", "recoveries"),
    ("nvlink.crc_errors", _COUNTER, "fields(163,{link})", "CRC errors"),
    ("nvlink.malformed_packets", _COUNTER, "fields(206,{link})", "malformed packets"),
    ("nvlink.buffer_overruns", _COUNTER, "fields(207,{link})", "receive buffer overruns"),
    ("nvlink.receive_errors", _COUNTER, "fields(208,{link})", "packets received with errors"),
    ("nvlink.remote_errors", _COUNTER, "fields(209,{link})", "packets that the other end marked bad"),
    ("nvlink.general_errors", _COUNTER, "fields(210,{link})", "packets with a bad header"),
    ("nvlink.integrity_errors", _COUNTER, "fields(211,{link})", "local link integrity errors"),
    ("nvlink.transmit_discards", _COUNTER, "fields(212,{link})", "bad packets dropped on sending"),
    ("nvlink.recoveries_failed", _COUNTER, "fields(214,{link})", "recoveries that failed"),
    ("nvlink.recovery_events", _COUNTER, "fields(215,{link})", "recoveries, NVLink 5"),
    ("nvlink.effective_errors", _COUNTER, "fields(219,{link})", "errors left after correction"),
    ("nvlink.symbol_errors", _COUNTER, "fields(221,{link})", "symbol errors"),
)

# Of the links of a GPU to its CPU, in the slot of the GPU.
C2C = _rows(("c2c.active", _TRUTH, "fields(171,{link})", "whether the link is active"))
