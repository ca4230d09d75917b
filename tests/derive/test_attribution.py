from __future__ import annotations

import pytest

from nodeguard.derive.attribution import attribute_reading, find_owners
from nodeguard.derive.disks import disk_uses
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from tests.derive.readings import GPUS, observe, readings

ROUND = readings(
    observe("nvml", GPUS[0], {"a": 1}),
    observe("pci", GPUS[0], {"pci.upstream": "0000:1a:01.0"}),
    observe("infiniband", "port/mlx5_0/1", {"port.pci": "0000:9c:00.0"}),
    observe("pci", "pci/0000:9c:00.0", {"pci.upstream": "0000:9b:01.0"}),
    observe("infiniband", "port/mlx5_1/1", {"port.pci": "0000:9d:00.0"}),
    observe("infiniband", "port/mlx5_1/2", {"port.pci": "0000:9d:00.0"}),
    observe("pci", "pci/0000:05:00.0", {"pci.upstream": "0000:04:01.0"}),
    observe("pci", "pci/0000:05:00.1", {"pci.upstream": "0000:04:01.0"}),
    observe("filesystem", "fs:/raid", {"fs.device": "/dev/nvme1n1"}),
    observe("filesystem", "fs:/", {"fs.device": "/dev/nvme0n1p2"}),
    observe("filesystem", "fs:/home", {"fs.device": "10.0.0.5:/home"}),
    observe("filesystem", "fs:/data", {"fs.device": "/dev/mapper/data"}),
    observe("disks", "disk/dm-3", {"disk.slaves": "nvme4n1", "disk.mapper_name": "data"}),
    observe("disks", "disk/nvme3", {"disk.transport": "pcie", "disk.root_port": "0000:a3:01.0"}),
    observe("disks", "disk/nvme7", {"disk.transport": "tcp", "disk.namespaces": "nvme7n1"}),
    observe("filesystem", "fs:/remote", {"fs.device": "/dev/nvme7n1"}),
    observe("disks", "disk/nvme8", {"disk.transport": "tcp"}),
    Observation(
        "memory", "dimm/mc0/dimm0", signals={"dimm.corrected": 0}, component=Component("CPU0_DIMM_A1")
    ),
    Observation("memory", "dimm/mc1/dimm0", signals={"dimm.corrected": 0}, component=Component("DIMM")),
    Observation("memory", "dimm/mc1/dimm1", signals={"dimm.corrected": 0}, component=Component("DIMM")),
)
LATEST = {reading.source: reading for reading in ROUND}


def event_owner(target: str, signal: str = "pci.fatal_error", **fields: str) -> str:
    """Return the target that an event is attributed to."""
    log = Reading(
        "kmsg", 100, (Observation("kmsg", target, events=(Event(signal, 99, fields=dict(fields)),)),)
    )
    [item] = attribute_reading(log, find_owners(LATEST, {}), disk_uses(LATEST)).observations
    return item.target


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("pci/0000:1b:00.0", GPUS[0]),
        ("pci/0000:1a:01.0", GPUS[0]),
        ("pci/0000:9c:00.0", "port/mlx5_0/1"),
        ("pci/0000:9b:01.0", "port/mlx5_0/1"),
        ("pci/0000:9d:00.0", "pci/0000:9d:00.0"),
        ("pci/0000:04:01.0", "pci/0000:04:01.0"),
        ("pci/0000:ff:00.0", "pci/0000:ff:00.0"),
        ("node", "node"),
    ],
)
def test_event_of_an_address_belongs_to_the_device_there(message: str, meant: str) -> None:
    assert event_owner(message) == meant


@pytest.mark.parametrize(
    ("device", "signal", "meant"),
    [
        ("nvme1n1", "fs.shut_down", "fs:/raid"),
        ("nvme0n1p2", "fs.kernel_error", "fs:/"),
        ("dm-3", "fs.shut_down", "fs:/data"),
        ("dm-4", "fs.shut_down", "disk/dm-4"),
        ("nvme1n1", "disk.io_error", "disk/nvme1"),
        ("nvme1", "disk.lost", "disk/nvme1"),
        ("dm-3", "disk.io_error", "disk/dm-3"),
    ],
)
def test_event_of_a_device_belongs_to_its_file_system_or_disk(device: str, signal: str, meant: str) -> None:
    assert event_owner(f"disk/{device}", signal, dev=device) == meant


@pytest.mark.parametrize(
    ("device", "signal", "expected"),
    [
        ("nvme1n1", "fs.shut_down", "fs.shut_down"),
        ("nvme0n1p2", "disk.io_error", "disk.io_error"),
        ("nvme0", "disk.lost", "disk.lost"),
        ("nvme0n1p3", "disk.io_error", "disk.io_error"),
        ("nvme0n1p3", "fs.shut_down", "volume.error"),
        ("nvme2", "disk.lost", "volume.lost"),
        ("nvme2", "disk.controller_down", "volume.lost"),
        ("nvme2", "disk.controller_up", "disk.controller_up"),
        ("nvme3", "disk.lost", "disk.failed"),
        ("nvme3", "disk.removed", "volume.lost"),
        ("nvme0", "disk.removed", "disk.lost"),
        ("nvme3", "disk.controller_down", "disk.controller_down"),
        ("nvme3n1", "disk.io_error", "disk.io_error"),
        ("nvme3n1", "fs.kernel_error", "volume.error"),
        ("nvme4", "disk.lost", "disk.lost"),
        ("dm-3", "fs.shut_down", "fs.shut_down"),
        ("dm-3", "disk.io_error", "disk.io_error"),
        ("sdb", "disk.offlined", "disk.offlined"),
        ("sdb1", "fs.kernel_error", "volume.error"),
        ("dm-7", "disk.io_error", "volume.error"),
        ("nvme3", "disk.timeout", "disk.timeout"),
        ("nvme8", "disk.timeout", "volume.timeout"),
        ("nvme9", "disk.timeout", "volume.timeout"),
        ("nvme7", "disk.timeout", "volume.timeout"),
        ("nvme7", "disk.controller_down", "volume.controller_down"),
        ("nvme7", "disk.removed", "disk.lost"),
    ],
)
def test_event_of_a_disk_depends_on_its_use(device: str, signal: str, expected: str) -> None:
    event = Event(signal, 99, fields={"dev": device})
    log = Reading("kmsg", 100, (Observation("kmsg", f"disk/{device}", events=(event,)),))
    [observation] = attribute_reading(log, find_owners(LATEST, {}), disk_uses(LATEST)).observations
    assert [event.signal for event in observation.events] == [expected]


@pytest.mark.parametrize(
    ("device", "action"),
    [
        ("nvme3n1", None),
        ("nvme1n1", "contact-support"),
        ("nvme7", "contact-support"),
        ("sda1", "contact-support"),
    ],
)
def test_a_disk_that_is_not_known_to_be_of_this_machine_needs_no_replacement(
    device: str, action: str | None
) -> None:
    event = Event("disk.io_error", 99, fields={"dev": device})
    log = Reading("kmsg", 100, (Observation("kmsg", f"disk/{device}", events=(event,)),))
    [observation] = attribute_reading(log, {}, {**disk_uses(LATEST), "disk/sda": "unread"}).observations
    assert observation.events[0].fields.get("action") == action


@pytest.mark.parametrize(
    ("label", "meant"), [("CPU0_DIMM_A1", "dimm/mc0/dimm0"), ("DIMM", "node"), ("unknown memory", "node")]
)
def test_event_with_a_dimm_label_belongs_to_that_dimm(label: str, meant: str) -> None:
    assert event_owner("node", "dimm.corrected_error", label=label) == meant


def test_event_of_the_nfs_client_belongs_to_the_only_mount_that_it_can_be() -> None:
    assert event_owner("node", "fs.locks_lost") == "fs:/home"
    assert event_owner("node", "fs.recovery_failed", server="10.0.0.5") == "fs:/home"
    assert event_owner("node", "fs.recovery_failed", server="10.0.0.6") == "node"
    assert event_owner("node", "fs.server_silent", server="10.0.0.5") == "node"


def test_event_of_the_nfs_client_with_several_mounts_belongs_to_the_node() -> None:
    mounts = readings(
        observe("filesystem", "fs:/home", {"fs.device": "10.0.0.5:/home"}),
        observe("filesystem", "fs:/scratch", {"fs.device": "[fe80::1]:/scratch"}),
        observe("filesystem", "fs:/lustre", {"fs.device": "10.0.0.8@tcp:/fs"}),
        observe("filesystem", "fs:/ceph", {"fs.device": "10.0.0.7:6789,10.0.0.8:6789:/"}),
    )
    owners = find_owners({reading.source: reading for reading in mounts}, {})
    for fields, target in (
        ({}, "node"),
        ({"server": "10.0.0.5"}, "fs:/home"),
        ({"server": "[fe80::1]"}, "fs:/scratch"),
    ):
        event = Event("fs.recovery_failed", 99, fields=dict[str, Scalar](fields))
        log = Reading("kmsg", 100, (Observation("kmsg", "node", events=(event,)),))
        [item] = attribute_reading(log, owners, {}).observations
        assert item.target == target


def test_events_of_one_observation_may_have_several_owners() -> None:
    labels = ("CPU0_DIMM_A1", "DIMM", "CPU0_DIMM_A1")
    events = tuple(
        Event("dimm.corrected_error", float(at), fields={"label": label}) for at, label in enumerate(labels)
    )
    log = Reading("kmsg", 100, (Observation("kmsg", "node", events=events),))
    moved = attribute_reading(log, find_owners(LATEST, {}), disk_uses(LATEST)).observations
    assert {item.target: [event.at for event in item.events] for item in moved} == {
        "dimm/mc0/dimm0": [0, 2],
        "node": [1],
    }


def test_port_of_a_function_that_manages_nvswitches_belongs_to_the_nvswitch() -> None:
    rounds = readings(
        observe("pci", "nvswitch/0000:05:00.1", {"pci.manages_nvswitches": True}),
        observe("infiniband", "port/mlx5_8/1", {"port.pci": "0000:05:00.1"}),
    )
    owners = find_owners({reading.source: reading for reading in rounds}, {})
    assert [item.target for item in attribute_reading(rounds[1], owners, {}).observations] == [
        "nvswitch/0000:05:00.1"
    ]
    log = Reading("kmsg", 100, (Observation("kmsg", "pci/0000:05:00.1", events=(Event("nic.hot", 99),)),))
    assert attribute_reading(log, owners, {}).observations[0].target == "nvswitch/0000:05:00.1"


def test_readings_are_attributed_as_events_are() -> None:
    owned = find_owners(LATEST, {})
    functions = Reading("pci", 100, (observe("pci", "pci/0000:9c:00.0", {"b": 1}),))
    assert [observation.target for observation in attribute_reading(functions, owned, {}).observations] == [
        "port/mlx5_0/1"
    ]
    assert attribute_reading(ROUND[0], owned, {}) is ROUND[0]


def test_owner_stays_while_its_pci_address_cannot_be_read() -> None:
    before = find_owners(LATEST, {})
    port = "port/mlx5_0/1"
    for observation in (
        Observation("infiniband", port, "failed", detail="refused"),
        Observation("infiniband", port, signals={"port.up": True}, unreadable={"port.pci": "refused"}),
    ):
        now = {**LATEST, "infiniband": Reading("infiniband", 110, (observation,))}
        assert find_owners(now, before)["pci/0000:9c:00.0"] == port
    gone = {**LATEST, "infiniband": Reading("infiniband", 110, ())}
    assert "pci/0000:9c:00.0" not in find_owners(gone, before)


BOUND: dict[str, Scalar] = {"pci.present": True, "pci.driver": "nvidia", "pci.procfs": True}
UNNAMED = {"gpu": "NVML gives no PCI address for GPU"}


def gpu_lists(*nvml: str, bus: tuple[str, ...] = tuple(GPUS), unlisted: bool = False) -> dict[str, Reading]:
    """The lists of GPUs that NVML, in the order of its indices, and the bus give."""
    rows = [Observation("nvml", "node", signals={"nvml.ready": True}, unlisted=UNNAMED)]
    rows += [observe("nvml", target, {"gpu.error": "none"}) for target in nvml]
    bus_rows = [observe("pci", target, BOUND) for target in bus]
    if unlisted:
        bus_rows.append(Observation("pci", "node", unlisted={"gpu": "refused"}))
    return {"nvml": Reading("nvml", 100, tuple(rows)), "pci": Reading("pci", 100, tuple(bus_rows))}


@pytest.mark.parametrize(
    ("nvml", "names"),
    [
        ((GPUS[0], "gpu/index-1", GPUS[2], GPUS[3]), {"gpu/index-1": GPUS[1]}),
        ((GPUS[0], "gpu/index-1", "gpu/index-2", GPUS[3]), {"gpu/index-1": GPUS[1], "gpu/index-2": GPUS[2]}),
        (("gpu/index-0",), {}),
        ((GPUS[3], "gpu/index-1", "gpu/index-2", GPUS[0]), {}),
        (tuple(GPUS), {}),
    ],
)
def test_nvml_gpu_without_a_pci_address_is_the_bus_gpu_that_nvml_does_not_list(
    nvml: tuple[str, ...], names: dict[str, str]
) -> None:
    result = find_owners(gpu_lists(*nvml), {})
    assert {target: owner for target, owner in result.items() if "index" in target} == names


def test_nvml_gpu_without_a_pci_address_has_no_owner_if_the_bus_is_not_listed() -> None:
    latest = gpu_lists(GPUS[0], "gpu/index-1", bus=(GPUS[0], GPUS[1]), unlisted=True)
    assert "gpu/index-1" not in find_owners(latest, {})


def test_nvml_list_is_complete_after_each_gpu_has_its_pci_address() -> None:
    latest = gpu_lists(GPUS[0], "gpu/index-1", "gpu/index-1/nvlink/3", bus=(GPUS[0], GPUS[1]))
    moved = attribute_reading(latest["nvml"], find_owners(latest, {}), {})
    expected = ["node", GPUS[0], GPUS[1], f"{GPUS[1]}/nvlink/3"]
    assert [observation.target for observation in moved.observations] == expected
    assert moved.unlisted("gpu") == ""
    assert latest["nvml"].unlisted("gpu") != ""
