"""NVML recordings: a GPU of the Hopper generation and one of an NVL72 rack, as nvml.json has them."""

from __future__ import annotations

from typing import Any


def value(number: float, kind: int = 3) -> dict[str, Any]:
    """A field value. kind: NVML_VALUE_TYPE_*; 3 is an unsigned long long, 5 a signed int."""
    return {"valueType": kind, "value": number, "nvmlReturn": 0}


SYSTEM: dict[str, Any] = {
    "nvmlSystemGetDriverVersion": "580.95.05",
    "nvmlSystemGetNVMLVersion": "13.580.95.05",
    "nvmlSystemGetConfComputeState": {"environment": 0, "ccFeature": 0, "devToolsMode": 0},
    "nvmlSystemGetConfComputeGpusReadyState": 1,
}


def hopper(index: int = 0, links: int = 18) -> dict[str, Any]:
    """All results of an H100; its second link is down."""
    link_fields = {
        f"nvmlDeviceGetFieldValues({field},{link})": value(number, 1)
        for link in range(links)
        for field, number in ((164, 26562), (167, 0), (161, link), (162, 0), (163, 0))
        if link != 1
    }
    return {
        "nvmlDeviceGetPciInfo_v3": {
            "busIdLegacy": f"0000:{index + 1:02X}:00.0",
            "domain": 0,
            "bus": index + 1,
            "device": 0,
            "pciDeviceId": 0x233010DE,
            "pciSubSystemId": 0x16C110DE,
            "busId": f"00000000:{index + 1:02X}:00.0",
        },
        "nvmlDeviceGetUUID": f"GPU-00000000-0000-4000-8000-{index:012x}",
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetSerial": f"16500230000{index:02d}",
        "nvmlDeviceGetBoardPartNumber": "692-2G520-0200-000",
        "nvmlDeviceGetModuleId": index,
        "nvmlDeviceGetVbiosVersion": "96.00.99.00.01",
        "nvmlDeviceGetGspFirmwareMode": [1, 1],
        "nvmlDeviceGetMemoryInfo": {"total": 85520809984, "free": 85000000000, "used": 520809984},
        "nvmlDeviceGetTemperatureThreshold(1)": 89,
        "nvmlDeviceGetTemperatureThreshold(2)": 95,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetFieldValues(194,0)": value(-2, 5),
        "nvmlDeviceGetFieldValues(189,0)": value(700000, 1),
        "nvmlDeviceGetFieldValues(230,0)": value(0, 1),
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetRemappedRows": [3, 1, 1, 0],
        "nvmlDeviceGetRowRemapperHistogram": {"max": 2558, "high": 1, "partial": 1, "low": 0, "none": 0},
        **{
            f"nvmlDeviceGetTotalEccErrors({kind},{since})": kind + since
            for kind in (0, 1)
            for since in (0, 1)
        },
        **{
            f"nvmlDeviceGetMemoryErrorCounter({k},0,{p})": 10 * k + p for k in (0, 1) for p in (0, 1, 2, 3, 7)
        },
        "nvmlDeviceGetSramEccErrorStatus": {
            "version": 0x1000068,
            **dict.fromkeys(("aggregateUncParity", "aggregateUncSecDed", "aggregateCor"), 0),
            **dict.fromkeys(("volatileUncParity", "volatileUncSecDed", "volatileCor"), 1 << 40),
            **dict.fromkeys(("aggregateUncBucketL2", "aggregateUncBucketSm", "aggregateUncBucketPcie"), 0),
            **dict.fromkeys(("aggregateUncBucketMcu", "aggregateUncBucketOther", "bThresholdExceeded"), 0),
        },
        "nvmlDeviceGetRetiredPages_v2(0)": [],
        "nvmlDeviceGetRetiredPages_v2(1)": [
            {"address": 0x1234, "timestamp": 1700000000},
            {"address": 0x5678, "timestamp": 1700000001},
        ],
        "nvmlDeviceGetRetiredPagesPendingStatus": 0,
        "nvmlDeviceGetRepairStatus": [0, 1],
        "nvmlDeviceGetUnrepairableMemoryFlag_v1": 0,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x40,
        "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 40},
        "nvmlDeviceGetTemperatureV(0)": 61,
        "nvmlDeviceGetMarginTemperature": -1,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 8,
        "nvmlDeviceGetPcieReplayCounter": 12,
        "nvmlDeviceGetGpuFabricInfoV": {
            "version": 0x02000024,
            "clusterUuid": [*range(15), 0],
            "status": 0,
            "cliqueId": 7,
            "state": 3,
            "healthMask": 0,
        },
        "nvmlDeviceGetComputeRunningProcesses_v3": [
            {
                "pid": 4711,
                "usedGpuMemory": None,
                "gpuInstanceId": 0xFFFFFFFF,
                "computeInstanceId": 0xFFFFFFFF,
            },
            {"pid": 4712, "usedGpuMemory": 1 << 30, "gpuInstanceId": 0, "computeInstanceId": 0},
        ],
        "nvmlDeviceGetFieldValues(82,0)": value(55, 1),
        "nvmlDeviceGetFieldValues(190,0)": value(700000, 1),
        "nvmlDeviceGetFieldValues(180,0)": value(0, 1),
        "nvmlDeviceGetFieldValues(91,0)": value(links, 1),
        **{f"nvmlDeviceGetNvLinkState({link})": int(link != 1) for link in range(links)},
        **link_fields,
    }


def rack() -> dict[str, Any]:
    """Further results of a GPU of an NVL72 rack: its place, its C2C links, the health of its fabric."""
    return hopper(links=0) | {
        "nvmlDeviceGetName": "NVIDIA GB300",
        "nvmlDeviceGetPlatformInfo": {
            "version": 0x0200002C,
            "ibGuid": [0x12, 0, 0x34, *range(13)],
            "chassisSerialNumber": "1820125000000",
            "slotNumber": 5,
            "trayIndex": 0,
            "hostId": 1,
            "peerType": 1,
            "moduleId": 2,
        },
        "nvmlDeviceGetGpuFabricInfoV": {
            "version": 0x03000028,
            "clusterUuid": [200, *range(15)],
            "status": 0,
            "cliqueId": 32766,
            "state": 3,
            "healthMask": 0x1A2,
            "healthSummary": 3,
        },
        "nvmlDeviceGetFieldValues(91,0)": {"error": "NVML_ERROR_NOT_SUPPORTED"},
        "nvmlDeviceGetNvLinkState(0)": 1,
        "nvmlDeviceGetNvLinkState(1)": 0,
        "nvmlDeviceGetNvLinkState(2)": 1,
        "nvmlDeviceGetFieldValues(214,0)": value(0),
        "nvmlDeviceGetFieldValues(214,2)": value(2),
        "nvmlDeviceGetFieldValues(221,2)": value(0xFFF),
        "nvmlDeviceGetFieldValues(170,0)": value(2, 1),
        "nvmlDeviceGetFieldValues(171,0)": value(1, 1),
        "nvmlDeviceGetFieldValues(171,1)": value(0, 1),
        "nvmlDeviceGetFieldValues(258,0)": {"valueType": 0, "value": 99.5, "nvmlReturn": 0},
    }
