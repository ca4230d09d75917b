"""Table of NVML signals: the call that returns each signal of a GPU or of one of its NVLinks.

A row: the signal, its type of value, its call, and its meaning. `CALL[0]` and `CALL.name` are an item of the
result of a call; of calls separated by ` | ` the first that does not fail counts. `fields(N)` is a field
value, nvmlDeviceGetFieldValues, by its NVML_FI_DEV_* number; `{link}` is the number of an NVLink.
"""

from __future__ import annotations

from nodeguard.sources import max_rates
from nodeguard.sources.nvml_rows import (
    BOOLEAN,
    CELSIUS,
    CELSIUS_DISTANCE,
    CELSIUS_LIMIT,
    CLOCK_REASONS,
    CURRENT_PCIE_GENERATION,
    ENUMERATION,
    GAUGE,
    IDENTIFIER,
    LENGTH,
    MEMORY_SIZE,
    NANOSECONDS,
    NUMBER,
    NVLINK_RATE,
    PCIE_GENERATION,
    PCIE_LANES,
    PERCENT,
    POWER_LIMIT,
    RETURN_CODE,
    TEXT,
    UUID,
    counter,
    make_rows,
    reason,
)

PACKETS, CORRECTED = counter(max_rates.PACKETS), counter(max_rates.CORRECTED)
HANDLED, UNCORRECTED = counter(max_rates.HANDLED), counter(max_rates.UNCORRECTED)
LINK_RECOVERIES, FATAL = counter(max_rates.LINK_RECOVERIES), counter(max_rates.FATAL)
# GPUs have 512 spare rows. Source: NVIDIA GPU memory error management; eight times as many for later ones.
REMAPPED_ROWS = counter(max_rates.UNCORRECTED, most=4096)

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


GPU = make_rows(
    ("gpu.name", TEXT, "nvmlDeviceGetName", "model"),
    ("gpu.vbios", TEXT, "nvmlDeviceGetVbiosVersion", "VBIOS version"),
    ("gpu.board", TEXT, "nvmlDeviceGetBoardPartNumber", "board part number"),
    ("gpu.module", NUMBER, "nvmlDeviceGetModuleId", "number of the SXM socket"),
    ("gpu.chassis", TEXT, "nvmlDeviceGetPlatformInfo.chassisSerialNumber", "serial of the chassis"),
    ("gpu.tray", NUMBER, "nvmlDeviceGetPlatformInfo.trayIndex", "index of the tray in the chassis"),
    ("gpu.gsp", BOOLEAN, "nvmlDeviceGetGspFirmwareMode[0]", "whether GSP firmware runs"),
    (
        "gpu.persistence",
        BOOLEAN,
        "nvmlDeviceGetPersistenceMode",
        "whether the driver stays initialised without clients",
    ),
    ("gpu.memory.total", MEMORY_SIZE, "nvmlDeviceGetMemoryInfo.total", "memory"),
    ("gpu.recovery_action", ENUMERATION, "fields(230)", "what the driver wants done, by number"),
    ("gpu.ecc.enabled", BOOLEAN, "nvmlDeviceGetEccMode[0]", "whether ECC is on"),
    ("gpu.ecc.enabled_next", BOOLEAN, "nvmlDeviceGetEccMode[1]", "whether ECC is on after the next reset"),
    (
        "gpu.ecc.corrected",
        CORRECTED,
        "nvmlDeviceGetTotalEccErrors(0,0)",
        "corrected errors since the driver was loaded",
    ),
    (
        "gpu.ecc.uncorrected",
        UNCORRECTED,
        "nvmlDeviceGetTotalEccErrors(1,0)",
        "uncorrected errors since the driver was loaded",
    ),
    ("gpu.ecc.corrected_lifetime", CORRECTED, "nvmlDeviceGetTotalEccErrors(0,1)", "corrected errors ever"),
    (
        "gpu.ecc.uncorrected_lifetime",
        UNCORRECTED,
        "nvmlDeviceGetTotalEccErrors(1,1)",
        "uncorrected errors ever",
    ),
    *(
        (
            f"gpu.ecc.{place}.{name}",
            value_type,
            f"nvmlDeviceGetMemoryErrorCounter({kind},0,{number})",
            f"{name} errors in {where}",
        )
        for place, number, where in _PLACES
        for kind, (name, value_type) in enumerate((("corrected", CORRECTED), ("uncorrected", UNCORRECTED)))
    ),
    (
        "gpu.ecc.sram_threshold_exceeded",
        BOOLEAN,
        "nvmlDeviceGetSramEccErrorStatus.bThresholdExceeded",
        "whether SRAM has too many distinct uncorrected errors",
    ),
    (
        "gpu.row_remap.corrected",
        REMAPPED_ROWS,
        "nvmlDeviceGetRemappedRows[0]",
        "rows remapped for corrected errors",
    ),
    (
        "gpu.row_remap.uncorrected",
        REMAPPED_ROWS,
        "nvmlDeviceGetRemappedRows[1]",
        "rows remapped for uncorrected errors",
    ),
    ("gpu.row_remap.pending", BOOLEAN, "nvmlDeviceGetRemappedRows[2]", "whether a remap waits for a reset"),
    ("gpu.row_remap.failed", BOOLEAN, "nvmlDeviceGetRemappedRows[3]", "whether a remap has ever failed"),
    *(
        (
            f"gpu.row_remap.banks_{share}",
            GAUGE,
            f"nvmlDeviceGetRowRemapperHistogram.{share}",
            f"memory banks with {words}",
        )
        for share, words in _SPARES
    ),
    ("gpu.retired_pages.corrected", LENGTH, _retired(0), "pages retired for corrected errors"),
    ("gpu.retired_pages.uncorrected", LENGTH, _retired(1), "pages retired for uncorrected errors"),
    (
        "gpu.retired_pages.pending",
        BOOLEAN,
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "whether a page waits to be retired",
    ),
    (
        "gpu.repair.channel_pending",
        BOOLEAN,
        "nvmlDeviceGetRepairStatus[0]",
        "whether a memory channel's repair waits for a reset",
    ),
    (
        "gpu.repair.tpc_pending",
        BOOLEAN,
        "nvmlDeviceGetRepairStatus[1]",
        "whether a compute unit's repair waits for a reset",
    ),
    (
        "gpu.memory.unrepairable",
        BOOLEAN,
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "whether memory can no longer be repaired",
    ),
    ("gpu.clocks.sm", GAUGE, "nvmlDeviceGetClockInfo(1)", "clock of the SMs, MHz"),
    ("gpu.clocks.sm_max", NUMBER, "nvmlDeviceGetMaxClockInfo(1)", "highest clock of the SMs, MHz"),
    ("gpu.clocks.reasons", CLOCK_REASONS, _CLOCKS, "mask of the reasons for clocks below the highest"),
    ("gpu.clocks.idle", reason(0x1), _CLOCKS, "clocks are low for want of work"),
    ("gpu.clocks.power_cap", reason(0x4), _CLOCKS, "clocks are held down by the software power cap"),
    ("gpu.clocks.hw_slowdown", reason(0x8), _CLOCKS, "hardware slows the clocks"),
    ("gpu.clocks.sw_thermal", reason(0x20), _CLOCKS, "software slows the clocks for heat"),
    ("gpu.clocks.hw_thermal", reason(0x40), _CLOCKS, "hardware slows the clocks for heat"),
    ("gpu.clocks.power_brake", reason(0x80), _CLOCKS, "the board's power supply slows the clocks"),
    ("gpu.clocks.sw_thermal_time", NANOSECONDS, "fields(269)", "time slowed by software for heat"),
    ("gpu.clocks.hw_thermal_time", NANOSECONDS, "fields(270)", "time slowed by hardware for heat"),
    ("gpu.clocks.power_brake_time", NANOSECONDS, "fields(271)", "time slowed by the power supply"),
    ("gpu.utilization", PERCENT, "nvmlDeviceGetUtilizationRates.gpu", "share of time in which a kernel ran"),
    ("gpu.temperature", CELSIUS, _TEMPERATURE, "temperature"),
    (
        "gpu.temperature.limit_distance",
        CELSIUS,
        "nvmlDeviceGetMarginTemperature",
        "degrees left to the thermal limit, negative above it",
    ),
    (
        "gpu.temperature.slowdown_distance",
        CELSIUS_DISTANCE,
        "fields(194)",
        "distance to the limit at which clocks slow down",
    ),
    (
        "gpu.temperature.slowdown",
        CELSIUS_LIMIT,
        "nvmlDeviceGetTemperatureThreshold(1)",
        "temperature at which clocks slow down",
    ),
    ("gpu.memory.temperature", CELSIUS, "fields(82)", "temperature of the memory"),
    (
        "gpu.memory.temperature_max",
        CELSIUS_LIMIT,
        "nvmlDeviceGetTemperatureThreshold(2)",
        "highest temperature at which the memory runs at full speed",
    ),
    ("gpu.power.limit", POWER_LIMIT, "fields(190)", "power limit that is enforced"),
    ("gpu.power.limit_default", POWER_LIMIT, "fields(189)", "power limit at boot"),
    ("gpu.power.smoothing_life", PERCENT, "fields(258)", "life left in the power-smoothing circuit"),
    (
        "gpu.pcie.gen",
        CURRENT_PCIE_GENERATION,
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "PCIe generation of the link now",
    ),
    (
        "gpu.pcie.gen_max",
        PCIE_GENERATION,
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "highest that GPU and slot can do",
    ),
    ("gpu.pcie.width", PCIE_LANES, "nvmlDeviceGetCurrPcieLinkWidth", "PCIe lanes now"),
    (
        "gpu.pcie.width_max",
        PCIE_LANES,
        "nvmlDeviceGetMaxPcieLinkWidth",
        "most lanes that GPU and slot can do",
    ),
    ("gpu.pcie.replays", CORRECTED, "nvmlDeviceGetPcieReplayCounter", "PCIe replays"),
    ("gpu.pcie.replay_rollovers", CORRECTED, "fields(95)", "PCIe replay counter roll-overs"),
    ("gpu.pcie.correctable", CORRECTED, "fields(173)", "correctable PCIe errors"),
    ("gpu.pcie.nonfatal", HANDLED, "fields(179)", "non-fatal PCIe errors"),
    ("gpu.pcie.fatal", FATAL, "fields(180)", "fatal PCIe errors"),
    ("gpu.nvlink.count", NUMBER, "fields(91)", "NVLinks that the GPU has"),
    ("gpu.c2c.count", NUMBER, "fields(170)", "links that the GPU has to its CPU"),
    (
        "gpu.fabric.state",
        ENUMERATION,
        _fabric("state"),
        "registration: 0 not supported, 1 not started, 2 in progress, 3 completed",
    ),
    ("gpu.fabric.status", RETURN_CODE, _fabric("status"), "NVML return code of the registration"),
    (
        "gpu.fabric.health_summary",
        ENUMERATION,
        _fabric("healthSummary"),
        "0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity",
    ),
    ("gpu.fabric.health_mask", NUMBER, _fabric("healthMask"), "fabric health, two to four bits a field"),
    ("gpu.fabric.cluster", UUID, _fabric("clusterUuid"), "UUID of the NVLink fabric; zero outside of a rack"),
    (
        "gpu.fabric.clique",
        IDENTIFIER,
        _fabric("cliqueId"),
        "partition of the NVLink fabric that the GPU is in",
    ),
    ("gpu.mig.enabled", BOOLEAN, "nvmlDeviceGetMigMode[0]", "whether MIG is on"),
    ("gpu.mig.enabled_next", BOOLEAN, "nvmlDeviceGetMigMode[1]", "whether MIG is on after the next reset"),
    ("gpu.processes", LENGTH, _PROCESSES, "compute processes"),
)

NVLINK = make_rows(
    ("nvlink.active", BOOLEAN, "nvmlDeviceGetNvLinkState({link})", "whether the link is active"),
    ("nvlink.speed", NVLINK_RATE, "fields(164,{link})", "raw signalling rate, MB/s"),
    ("nvlink.sleeping", BOOLEAN, "fields(167,{link})", "whether the link sleeps for want of traffic"),
    ("nvlink.replays", CORRECTED, "fields(161,{link})", "replays"),
    ("nvlink.recoveries", LINK_RECOVERIES, "fields(162,{link})", "recoveries"),
    ("nvlink.crc_errors", PACKETS, "fields(163,{link})", "CRC errors"),
    ("nvlink.malformed_packets", PACKETS, "fields(206,{link})", "malformed packets"),
    ("nvlink.buffer_overruns", PACKETS, "fields(207,{link})", "receive buffer overruns"),
    ("nvlink.receive_errors", PACKETS, "fields(208,{link})", "packets received with errors"),
    ("nvlink.remote_errors", PACKETS, "fields(209,{link})", "packets that the other end marked bad"),
    ("nvlink.general_errors", PACKETS, "fields(210,{link})", "packets with a bad header"),
    ("nvlink.integrity_errors", PACKETS, "fields(211,{link})", "local link integrity errors"),
    ("nvlink.transmit_discards", PACKETS, "fields(212,{link})", "bad packets dropped on sending"),
    ("nvlink.recoveries_failed", FATAL, "fields(214,{link})", "recoveries that failed"),
    ("nvlink.recovery_events", LINK_RECOVERIES, "fields(215,{link})", "recoveries, NVLink 5"),
    ("nvlink.effective_errors", PACKETS, "fields(219,{link})", "errors left after correction"),
    ("nvlink.symbol_errors", PACKETS, "fields(221,{link})", "symbol errors"),
)

# Of the links of a GPU to its CPU, in the slot of the GPU.
C2C = make_rows(("c2c.active", BOOLEAN, "fields(171,{link})", "whether the link is active"))
