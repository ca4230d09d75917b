"""What nodeguard reads of a GPU through NVML, and in which order.

A row is one quantity; where it stands under several names, they are tried in turn until one does not fail.
Only what is read by somebody is asked, because any call may hang. Names are pynvml's, with the arguments
after the handle. Fields are NVML_FI_DEV_* of nvml.h, by number.
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

# What cannot change while the driver stays loaded: who the device is, and its limits.
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
    "nvmlDeviceGetPlatformInfo",  # chassis, slot and tray
)
IDENTITY_FIELDS = (
    194,  # TEMPERATURE_SLOWDOWN_TLIMIT, degrees left
    189,  # POWER_DEFAULT_LIMIT
)

RECOVERY_ACTION = 230  # GET_GPU_RECOVERY_ACTION: what the driver itself wants done, asked before all else

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
LINK_POWER = 167  # NVLINK_GET_POWER_STATE: an inactive NVLink may but sleep
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

# Has a device tell of its errors unasked, as long as the session lasts; see nvml_events.
REGISTER_EVENTS = "nvmlDeviceRegisterEvents"

# NVML_NVLINK_MAX_LINKS of NVML 13; what a driver claims above it is not believed.
MAX_LINKS = 36

# The slow part of a device in groups, which are asked as a whole: its identity under this name, and the
# errors of each NVLink under the link's number.
IDENTITY_GROUP = -1
_GROUPS = (
    {call: IDENTITY_GROUP for row in IDENTITY for call in row.split(" | ")}
    | {f"{FIELD_VALUES}({field},0)": IDENTITY_GROUP for field in IDENTITY_FIELDS}
    | {f"{FIELD_VALUES}({field},{link})": link for field in LINK_FIELDS for link in range(MAX_LINKS)}
)
group_of = _GROUPS.get

# Seconds after which what is not asked in each round is asked again: who a device is, and the errors of its
# NVLinks, which are two thirds of all that there is to ask.
SLOW = 60.0

# Errors that say no more than that a device or a driver lacks something. After any other the whole device is
# asked in the next round.
_LACKED = frozenset(
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


def ask_all(ask: CallLog, resting: frozenset[int], known: Links | None = None) -> dict[int, frozenset[int]]:
    """One round of all calls: the system's, then device after device, each to its end before the next.

    resting: scopes to leave alone; of a resting SYSTEM only what the devices cannot do without is asked.
    known: devices whose slow part this session has asked lately, with the NVLinks that were active then; of
    these it is said to be as before. Returns what is known so after this round. A driver that does not
    initialise ends the round, a device without handle ends that device.
    """
    after: dict[int, frozenset[int]] = {}
    if ask(SYSTEM, "nvmlInit") is not None:
        return after
    if SYSTEM not in resting:
        for row in SYSTEM_CALLS:
            _first(ask, SYSTEM, row)
    count = ask(SYSTEM, DEVICE_COUNT)
    for index in range(count if isinstance(count, int) else 0):
        if index not in resting and ask(index, "nvmlDeviceGetHandleByIndex") is None:
            asked = _ask_device(ask, index, (known or {}).get(index))
            if asked is not None:
                after[index] = asked
    return after


def _ask_device(ask: CallLog, index: int, known: frozenset[int] | None) -> frozenset[int] | None:
    """Ask one device. Returns the NVLinks whose errors are known now; None where the device is in trouble."""
    if known is None:
        for row in IDENTITY:
            _first(ask, index, row)
        ask.fields(index, [(field, 0) for field in IDENTITY_FIELDS])
    else:
        ask.mark_unchanged(index, [IDENTITY_GROUP])
    ask.fields(index, [(RECOVERY_ACTION, 0)])
    errors = {_first(ask, index, row) for row in HEALTH}
    ask.fields(index, [(field, 0) for field in HEALTH_FIELDS])
    nvlinks, c2c_links = (_count(result) for result in ask.fields(index, [(NVLINK_COUNT, 0), (C2C_COUNT, 0)]))
    states = _link_states(ask, index, nvlinks)
    active = [link for link, state in states.items() if state == 1]
    for link in active:
        if known is None or link not in known:
            ask.fields(index, [(field, link) for field in LINK_FIELDS])
    if known:
        ask.mark_unchanged(index, [link for link in active if link in known])
    ask.fields(index, [(LINK_POWER, link) for link, state in states.items() if state == 0])
    ask.fields(index, [(C2C_STATUS, link) for link in range(c2c_links or 0)])
    ask(index, REGISTER_EVENTS)
    errors |= {error_name(state) for state in states.values()}
    return frozenset(active) if errors <= _LACKED else None


def _first(ask: CallLog, scope: int, row: str) -> str:
    """Ask the names of a row in turn until one does not fail. Returns the last one's error, or ``."""
    failed = ""
    for call in row.split(" | "):
        failed = error_name(ask(scope, call))
        if not failed:
            break
    return failed


def _count(result: Any) -> int | None:
    """A number of links as a field value tells it, None where it does not."""
    value = result.get("value") if isinstance(result, dict) else None
    return min(value, MAX_LINKS) if isinstance(value, int) else None


def _link_states(ask: CallLog, index: int, count: int | None) -> dict[int, Any]:
    """State of each NVLink; where their count is not known, each is tried until one fails.

    That may be the first that is not there, or a GPU that fails all it is asked.
    """
    states = {}
    for link in range(MAX_LINKS if count is None else count):
        state = ask(index, f"nvmlDeviceGetNvLinkState({link})")
        if count is None and error_name(state):
            break
        states[link] = state
    return states
