"""NVML calls of one round, and their order.

A row is one quantity; several names in a row are tried in turn until one does not fail. Only quantities that
are used are read, because any call may hang. Names are pynvml's, with the arguments after the handle. Fields
are NVML_FI_DEV_* of nvml.h, by number.
"""

from __future__ import annotations

from nodeguard.worker.call_log import FIELD_VALUES, SYSTEM, TYPE_CHECKING, CallLog, error_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    # Devices, and of each the NVLinks.
    Links = Mapping[int, frozenset[int]]

DRIVER_VERSION = "nvmlSystemGetDriverVersion"
DEVICE_COUNT = "nvmlDeviceGetCount"

SYSTEM_CALLS = (
    DRIVER_VERSION,
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetConfComputeState",
    "nvmlSystemGetConfComputeGpusReadyState",
)

# Constant while the driver stays loaded: identity and limits of the device.
IDENTITY = (
    "nvmlDeviceGetPciInfo_v3 | nvmlDeviceGetPciInfo",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetModuleId",  # number of the SXM socket
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperatureThreshold(1)",  # slowdown
    "nvmlDeviceGetTemperatureThreshold(2)",  # memory, at most
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMaxClockInfo(1)",  # SM
    "nvmlDeviceGetPlatformInfo",  # chassis, slot and tray
)
IDENTITY_FIELDS = (
    194,  # TEMPERATURE_SLOWDOWN_TLIMIT, degrees left
    189,  # POWER_DEFAULT_LIMIT
)

RECOVERY_ACTION = 230  # GET_GPU_RECOVERY_ACTION: the action that the driver itself recommends, read first

HEALTH = (
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRowRemapperHistogram",
    *(f"nvmlDeviceGetTotalEccErrors({kind},{since})" for kind in (0, 1) for since in (0, 1)),
    # Volatile counts, corrected and not, by place: L1, L2, device memory, register file, CBU, SRAM.
    *(
        f"nvmlDeviceGetMemoryErrorCounter({kind},0,{place})"
        for kind in (0, 1)
        for place in (0, 1, 2, 3, 6, 7)
    ),
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRetiredPages_v2(0) | nvmlDeviceGetRetiredPages(0)",  # after repeated single-bit errors
    "nvmlDeviceGetRetiredPages_v2(1) | nvmlDeviceGetRetiredPages(1)",  # after a double-bit error
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlDeviceGetCurrentClocksEventReasons | nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetClockInfo(1)",  # SM
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperatureV(0) | nvmlDeviceGetTemperature(0)",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetGpuFabricInfoV | nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetComputeRunningProcesses_v3 | nvmlDeviceGetComputeRunningProcesses",
)
HEALTH_FIELDS = (
    82,  # MEMORY_TEMP
    190,  # POWER_CURRENT_LIMIT
    269,  # CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, nanoseconds, like the next two
    270,  # CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN
    271,  # CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
    95,  # PCIE_REPLAY_ROLLOVER_COUNTER
    173,  # PCIE_COUNT_CORRECTABLE_ERRORS
    179,  # PCIE_COUNT_NON_FATAL_ERROR
    180,  # PCIE_COUNT_FATAL_ERROR
    258,  # PWR_SMOOTHING_HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING
)

NVLINK_COUNT = 91  # NVLINK_LINK_COUNT
LINK_POWER = 167  # NVLINK_GET_POWER_STATE: an inactive NVLink may only be in a sleep state
# Of each active NVLink. All errors of a link, first as Hopper and older count them, then as Blackwell does.
LINK_FIELDS = (
    164,  # NVLINK_GET_SPEED, MB/s
    LINK_POWER,
    161,  # NVLINK_ERROR_DL_REPLAY
    162,  # NVLINK_ERROR_DL_RECOVERY
    163,  # NVLINK_ERROR_DL_CRC
    206,  # NVLINK_COUNT_MALFORMED_PACKET_ERRORS
    207,  # NVLINK_COUNT_BUFFER_OVERRUN_ERRORS
    208,  # NVLINK_COUNT_RCV_ERRORS
    209,  # NVLINK_COUNT_RCV_REMOTE_ERRORS
    210,  # NVLINK_COUNT_RCV_GENERAL_ERRORS
    211,  # NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS
    212,  # NVLINK_COUNT_XMIT_DISCARDS
    214,  # NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
    215,  # NVLINK_COUNT_LINK_RECOVERY_EVENTS
    219,  # NVLINK_COUNT_EFFECTIVE_ERRORS
    221,  # NVLINK_COUNT_SYMBOL_ERRORS
)

# The links between a Grace CPU and its GPU.
C2C_COUNT = 170  # C2C_LINK_COUNT
C2C_STATUS = 171  # C2C_LINK_GET_STATUS

# Registers a device for events, for the rest of the session; see nvml_events.
REGISTER_EVENTS = "nvmlDeviceRegisterEvents"

# NVML_NVLINK_MAX_LINKS of NVML 13; a higher count of a driver is cut to it.
MAX_LINKS = 36

# Groups of the calls that are not made in each round: the identity of a device under this number, and the
# errors of each NVLink under the number of the link.
IDENTITY_GROUP = -1
_GROUPS = (
    {call: IDENTITY_GROUP for row in IDENTITY for call in row.split(" | ")}
    | {f"{FIELD_VALUES}({field},0)": IDENTITY_GROUP for field in IDENTITY_FIELDS}
    | {f"{FIELD_VALUES}({field},{link})": link for field in LINK_FIELDS for link in range(MAX_LINKS)}
)


def group_of(call: str) -> int | str | None:
    """Return the group of a call on a device; calls that are made in each round are a group each.

    None for a call that is not on a device.
    """
    return _GROUPS.get(call, call if call.startswith("nvmlDevice") else None)


# Seconds after which these groups are read again. They are two thirds of all calls.
SLOW = 60.0

# Errors that only mean that a device or driver lacks something. After any other error, the next round reads
# the whole device.
_UNSUPPORTED = frozenset(
    f"NVML_ERROR_{name}"
    for name in (
        "NOT_SUPPORTED",
        "FUNCTION_NOT_FOUND",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "ARGUMENT_VERSION_MISMATCH",
        "DEPRECATED",
        "NO_DATA",
        "NO_PERMISSION",
    )
) | {""}


def ask_all(log: CallLog, skip: frozenset[int], recent: Links | None = None) -> dict[int, frozenset[int]]:
    """Make one round of all calls: the system's, then one device after the other.

    skip: scopes to skip; if it has SYSTEM, only the calls that the devices need are made. recent:
    devices with groups that this session has read recently, and their active NVLinks; these groups
    are logged as unchanged. Return `recent` for the next round. A driver that does not initialize ends the
    round; a device without a handle is skipped.
    """
    after: dict[int, frozenset[int]] = {}
    if log(SYSTEM, "nvmlInit") is not None:
        return after
    if SYSTEM not in skip:
        for row in SYSTEM_CALLS:
            _first(log, SYSTEM, row)
    count = log(SYSTEM, DEVICE_COUNT)
    for index in range(count if isinstance(count, int) else 0):
        if index not in skip and log(index, "nvmlDeviceGetHandleByIndex") is None:
            links = _ask_device(log, index, (recent or {}).get(index))
            if links is not None:
                after[index] = links
    return after


def _ask_device(log: CallLog, index: int, recent: frozenset[int] | None) -> frozenset[int] | None:
    """Read one device. Return its NVLinks with recent error counts; None if the device has a problem."""
    if recent is None:
        for row in IDENTITY:
            _first(log, index, row)
        log.fields(index, [(field, 0) for field in IDENTITY_FIELDS])
    else:
        log.mark_unchanged(index, [IDENTITY_GROUP])
    log.fields(index, [(RECOVERY_ACTION, 0)])
    errors = {_first(log, index, row) for row in HEALTH}
    log.fields(index, [(field, 0) for field in HEALTH_FIELDS])
    nvlinks, c2c_links = (_count(result) for result in log.fields(index, [(NVLINK_COUNT, 0), (C2C_COUNT, 0)]))
    states = _link_states(log, index, nvlinks)
    active = [link for link, state in states.items() if state == 1]
    for link in active:
        if recent is None or link not in recent:
            log.fields(index, [(field, link) for field in LINK_FIELDS])
    if recent:
        log.mark_unchanged(index, [link for link in active if link in recent])
    log.fields(index, [(LINK_POWER, link) for link, state in states.items() if state == 0])
    log.fields(index, [(C2C_STATUS, link) for link in range(c2c_links or 0)])
    log(index, REGISTER_EVENTS)
    errors |= {error_name(state) for state in states.values()}
    return frozenset(active) if errors <= _UNSUPPORTED else None


def _first(log: CallLog, scope: int, row: str) -> str:
    """Make the calls of a row in turn until one does not fail. Return the error of the last one, or ``."""
    error = ""
    for call in row.split(" | "):
        error = error_name(log(scope, call))
        if not error:
            break
    return error


def _count(result: Any) -> int | None:
    """Return a number of links from a field value, None if it has none."""
    value = result.get("value") if isinstance(result, dict) else None
    return min(value, MAX_LINKS) if isinstance(value, int) else None


def _link_states(log: CallLog, index: int, count: int | None) -> dict[int, Any]:
    """Return the state of each NVLink. Without a count, try each link until one fails.

    The failure may be the first link that does not exist, or a GPU on which all calls fail.
    """
    states = {}
    for link in range(MAX_LINKS if count is None else count):
        state = log(index, f"nvmlDeviceGetNvLinkState({link})")
        if count is None and error_name(state):
            break
        states[link] = state
    return states
