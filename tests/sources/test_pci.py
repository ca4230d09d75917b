from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.target import NODE
from nodeguard.sources.pci import FunctionIdentity, PciSource, function_target
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target

BUS = "/sys/bus/pci/devices"
GPU = "0000:3b:00.0"
AER = {
    "correctable": "RxErr 0\nBadTLP 4\nBadDLLP 0\nRollover 0\nTimeout 1\nTOTAL_ERR_COR 5\n",
    "fatal": "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nTOTAL_ERR_FATAL 0\n",
    "nonfatal": "Undefined 0\nUnsupReq 2\nTOTAL_ERR_NONFATAL 2\n",
}


def function(address: str, vendor: str, device: str, class_: str, *, linked: bool = True) -> dict[str, str]:
    """Files of a PCI function, as Linux 6.8 writes them."""
    path = f"{BUS}/{address}"
    files = {
        f"{path}/vendor": f"0x{vendor}\n",
        f"{path}/device": f"0x{device}\n",
        f"{path}/class": f"0x{class_}\n",
    }
    if linked:
        files |= {
            f"{path}/current_link_speed": "32.0 GT/s PCIe\n",
            f"{path}/max_link_speed": "32.0 GT/s PCIe\n",
            f"{path}/current_link_width": "16\n",
            f"{path}/max_link_width": "16\n",
        }
        files |= {f"{path}/aer_dev_{severity}": text for severity, text in AER.items()}
    return files


def links(address: str, driver: str, bridge: str = "0000:3a:01.0") -> dict[str, str]:
    return {
        f"{BUS}/{address}": f"../../../devices/pci0000:3a/{bridge}/{address}",
        f"{BUS}/{address}/driver": f"../../../../bus/pci/drivers/{driver}",
    }


def machine(*, nvidia: bool = True) -> FakeMachine:
    """A node with a GPU and its audio function, an NVSwitch, two RDMA adapters, and what else is on a bus."""
    files = {
        **function("0000:00:00.0", "8086", "09a2", "060000", linked=False),
        **function("0000:3a:01.0", "1000", "c030", "060400"),
        **function(GPU, "10de", "2330", "030200"),
        **function("0000:3b:00.1", "10de", "22e8", "040300"),
        **function("0000:c1:00.0", "10de", "22a3", "068000"),
        **function("0000:9c:00.0", "15b3", "1021", "020700"),
        f"{BUS}/0000:9c:00.0/infiniband/mlx5_0/node_guid": "\n",
        **function("0000:9d:00.0", "1d0f", "efa2", "020000"),
        **function("0000:9e:00.0", "14e4", "1750", "020000"),
        f"{BUS}/0000:9e:00.0/infiniband/bnxt_re0/node_guid": "\n",
        **function("0000:9f:00.0", "8086", "1593", "020000"),
    }
    fake = FakeMachine(
        files, links={**links(GPU, "nvidia"), **links("0000:9c:00.0", "mlx5_core", "0000:99:00.0")}
    )
    if nvidia:
        fake.files[f"/proc/driver/nvidia/gpus/{GPU}/information"] = "Model: NVIDIA H100 80GB HBM3\n"
    return fake


def test_a_gpu() -> None:
    observation = by_target(PciSource(), machine())["gpu/0000:3b:00"]
    assert observation.signals == {
        "pci.present": True,
        "pci.vendor": "10de",
        "pci.device": "2330",
        "pci.class": "0302",
        "pci.driver": "nvidia",
        "pci.virtual": False,
        "pci.answers": True,
        "pci.link.speed": 32.0,
        "pci.link.speed_max": 32.0,
        "pci.link.width": 16,
        "pci.link.width_max": 16,
        "pci.aer.correctable": 5,
        "pci.aer.nonfatal": 2,
        "pci.aer.fatal": 0,
        "pci.upstream": "0000:3a:01.0",
        "pci.upstream.width_max": 16,
        "pci.procfs": True,
    }
    assert observation.unreadable == {}


def test_pci_slot_below_an_unread_bridge_has_an_unread_width() -> None:
    unread = machine()
    unread.errors[f"{BUS}/0000:3b:00.0"] = errno.EACCES
    observation = by_target(PciSource(), unread)["gpu/0000:3b:00"]
    assert observation.unreadable.keys() == {"pci.upstream", "pci.upstream.width_max"}


def test_bus_has_a_target_for_each_gpu_switch_and_rdma_function() -> None:
    observations = by_target(PciSource(), machine())
    assert observations.keys() == {
        NODE,
        "gpu/0000:3b:00",
        "nvswitch/0000:c1:00",
        "pci/0000:9c:00.0",
        "pci/0000:9d:00.0",
        "pci/0000:9e:00.0",
    }
    assert observations[NODE].signals == {
        "gpu.pci_count": 1,
        "nvswitch.pci_count": 1,
        "rdma.function_count": 3,
        "nvswitch.manager_count": 0,
    }
    rdma = {
        target: observation.signals.get("pci.rdma_devices")
        for target, observation in observations.items()
        if target.startswith("pci/")
    }
    assert rdma == {"pci/0000:9c:00.0": 1, "pci/0000:9d:00.0": 0, "pci/0000:9e:00.0": 1}
    assert observations["pci/0000:9d:00.0"].signals["pci.driver"] == ""
    assert "pci.procfs" not in observations["nvswitch/0000:c1:00"].signals


def test_a_machine_without_a_pci_bus() -> None:
    observations = by_target(PciSource(), FakeMachine())
    assert observations.keys() == {NODE}
    assert observations[NODE].status == "absent"
    assert "/sys/bus/pci" in observations[NODE].detail


COUNTS = {"gpu.pci_count", "nvswitch.pci_count", "rdma.function_count", "nvswitch.manager_count"}


def test_empty_bus_is_read() -> None:
    observation = by_target(PciSource(), FakeMachine(directories=[BUS]))[NODE]
    assert observation.signals == dict.fromkeys(COUNTS, 0)


def test_a_bus_that_is_refused_is_not_counted() -> None:
    observation = by_target(PciSource(), FakeMachine(errors={BUS: errno.EACCES}))[NODE]
    assert observation.signals == {}
    assert observation.unreadable.keys() == COUNTS


@pytest.mark.parametrize(
    ("speed", "gigatransfers"), [("2.5 GT/s PCIe", 2.5), ("8 GT/s", 8.0), ("64.0 GT/s PCIe", 64.0)]
)
def test_link_speeds_of_old_and_new_kernels(speed: str, gigatransfers: float) -> None:
    fake = machine()
    fake.files[f"{BUS}/{GPU}/current_link_speed"] = f"{speed}\n"
    assert by_target(PciSource(), fake)["gpu/0000:3b:00"].signals["pci.link.speed"] == gigatransfers


def test_a_speed_that_the_kernel_does_not_know() -> None:
    fake = machine()
    fake.files[f"{BUS}/{GPU}/current_link_speed"] = "Unknown\n"
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert "reads 'Unknown'" in observation.unreadable["pci.link.speed"]
    assert observation.signals["pci.answers"] is True


def test_gpu_that_fell_off_the_bus_is_reported() -> None:
    fake = machine()
    fake.files |= {f"{BUS}/{GPU}/current_link_width": "63\n", f"{BUS}/{GPU}/current_link_speed": "Unknown\n"}
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert observation.signals["pci.answers"] is False
    assert observation.unreadable == {}
    assert not [name for name in observation.signals if "link" in name]
    assert observation.signals["pci.aer.correctable"] == 5


def test_function_that_the_kernel_removed() -> None:
    fake = machine()
    fake.errors[f"{BUS}/{GPU}/current_link_width"] = errno.EINVAL
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert "pci.answers" not in observation.signals, "one file may fail for another reason"
    assert observation.unreadable.keys() == {"pci.link.width", "pci.answers"}
    fake.errors[f"{BUS}/{GPU}/current_link_speed"] = errno.EINVAL
    assert by_target(PciSource(), fake)["gpu/0000:3b:00"].signals["pci.answers"] is False


@pytest.mark.parametrize("width", ["0", "255"])
def test_function_without_its_own_link_has_no_link_signals(width: str) -> None:
    fake = machine()
    fake.files |= {
        f"{BUS}/{GPU}/current_link_width": f"{width}\n",
        f"{BUS}/{GPU}/current_link_speed": "Unknown\n",
    }
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert not [
        name
        for name in {**observation.signals, **observation.unreadable}
        if "link" in name or "answers" in name
    ]


def test_a_virtual_machine_has_no_link_files() -> None:
    fake = FakeMachine(function(GPU, "10de", "2330", "030200", linked=False))
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert observation.signals.keys() == {
        "pci.present", "pci.vendor", "pci.device", "pci.class", "pci.driver", "pci.virtual",
    }  # fmt: skip
    assert observation.unreadable == {}


def test_invalid_value_affects_only_its_own_signal() -> None:
    fake = machine()
    path = f"{BUS}/{GPU}"
    fake.files |= {
        f"{path}/max_link_width": "17\n",
        f"{path}/aer_dev_fatal": "?\n",
        f"{path}/current_link_speed": "fast\n",
    }
    fake.errors[f"{path}/driver"] = errno.EACCES
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert observation.unreadable.keys() == {
        "pci.link.width_max",
        "pci.aer.fatal",
        "pci.link.speed",
        "pci.driver",
    }
    assert observation.signals["pci.link.width"] == 16


def test_unidentified_function_makes_the_counts_unknown() -> None:
    fake = machine()
    fake.files[f"{BUS}/{GPU}/class"] = "xyz\n"
    observations = by_target(PciSource(), fake)
    assert "gpu/0000:3b:00" not in observations
    assert observations[NODE].signals == {}
    assert observations[NODE].unreadable["gpu.pci_count"] == f"{GPU}: {BUS}/{GPU}/class reads 'xyz'"


@pytest.mark.parametrize("file", ["class", "vendor", "device"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT])
def test_list_with_an_unread_function_is_incomplete(file: str, code: int) -> None:
    fake = machine()
    fake.errors[f"{BUS}/{GPU}/{file}"] = code
    node = by_target(PciSource(), fake)[NODE]
    assert node.unlisted.keys() == {"gpu", "nvswitch", "pci"}
    assert "nvswitch.pci_count" in node.unreadable


def test_refused_bus_reports_no_function_as_present_or_absent() -> None:
    """The driver's own list is readable: a GPU in it is not reported as absent from the bus."""
    fake = machine()
    fake.errors[BUS] = errno.EACCES
    observations = by_target(PciSource(), fake)
    assert observations.keys() == {NODE}
    assert observations[NODE].unlisted.keys() == {"gpu", "nvswitch", "pci"}
    assert "permission denied" in observations[NODE].unlisted["gpu"]


def test_component_at_an_address_is_remembered_while_the_bus_is_refused() -> None:
    source, fake = PciSource(), machine()
    before = by_target(source, fake)
    fake.errors[BUS] = errno.EIO
    by_target(source, fake)
    del fake.errors[BUS]
    fake.errors[f"{BUS}/{GPU}/class"] = errno.EIO
    assert by_target(source, fake).keys() == before.keys()


def test_refused_driver_list_is_unread_for_each_gpu() -> None:
    fake = machine()
    fake.errors["/proc/driver/nvidia/gpus"] = errno.EIO
    assert "pci.procfs" in by_target(PciSource(), fake)["gpu/0000:3b:00"].unreadable


def test_whether_a_function_is_virtual_may_be_unread() -> None:
    fake = machine()
    fake.errors[f"{BUS}/{GPU}/physfn"] = errno.EIO
    observations = by_target(PciSource(), fake)
    assert "pci.virtual" in observations["gpu/0000:3b:00"].unreadable
    assert "gpu.pci_count" in observations[NODE].unreadable
    assert observations[NODE].signals["nvswitch.pci_count"] == 1


def test_truncated_file_is_not_parsed_as_a_number() -> None:
    fake = machine()
    fake.files[f"{BUS}/{GPU}/current_link_width"] = "1"
    observation = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert observation.unreadable["pci.link.width"] == "the file is cut short"


def test_gpus_assigned_to_virtual_machines_are_not_counted() -> None:
    fake = machine()
    virtual = f"{BUS}/0000:3c:00.4"
    fake.files |= function("0000:3c:00.4", "10de", "2330", "030200")
    fake.links |= {
        f"{virtual}/physfn": "../0000:3b:00.0",
        f"{BUS}/{GPU}/driver": "../../drivers/nvgrace_gpu_vfio_pci",
    }
    observations = by_target(PciSource(), fake)
    assert observations[NODE].signals["gpu.pci_count"] == 0
    assert observations["gpu/0000:3c:00"].signals["pci.virtual"] is True
    assert observations["gpu/0000:3b:00"].signals["pci.virtual"] is False


def test_virtual_function_does_not_replace_its_gpu() -> None:
    fake = machine()
    fake.files |= function("0000:3b:00.4", "10de", "2330", "030200")
    fake.links[f"{BUS}/0000:3b:00.4/physfn"] = f"../{GPU}"
    assert by_target(PciSource(), fake)["gpu/0000:3b:00"].signals["pci.virtual"] is False


def test_procfs_list_of_gpus() -> None:
    fake = machine()
    fake.files["/proc/driver/nvidia/gpus/0000:5d:00.0/information"] = "Model: Unknown\n"
    del fake.files[f"/proc/driver/nvidia/gpus/{GPU}/information"]
    observations = by_target(PciSource(), fake)
    assert observations["gpu/0000:3b:00"].signals["pci.procfs"] is False
    assert observations["gpu/0000:5d:00"].signals == {"pci.present": False, "pci.procfs": True}
    assert "pci.procfs" not in by_target(PciSource(), machine(nvidia=False))["gpu/0000:3b:00"].signals


def test_removed_and_added_gpu_is_updated() -> None:
    source, fake = PciSource(), machine(nvidia=False)
    by_target(source, fake)
    fake.remove(f"{BUS}/{GPU}")
    assert "gpu/0000:3b:00" not in by_target(source, fake)
    fake.files |= function(GPU, "10de", "2335", "030200")
    assert by_target(source, fake)["gpu/0000:3b:00"].signals["pci.device"] == "2335"


def test_constant_files_are_read_once() -> None:
    source, fake = PciSource(), machine()
    by_target(source, fake)
    assert len(fake.asked) == len(set(fake.asked))
    fake.asked.clear()
    by_target(source, fake)
    assert not [path for path in fake.asked if path.endswith(("/vendor", "/device", "/class", "/physfn"))]


def test_function_becomes_an_rdma_function_after_its_driver_loads() -> None:
    source, fake = PciSource(), machine()
    by_target(source, fake)
    fake.files[f"{BUS}/0000:9f:00.0/infiniband/irdma0/node_guid"] = "\n"
    observations = by_target(source, fake)
    assert observations["pci/0000:9f:00.0"].signals["pci.rdma_devices"] == 1
    assert observations[NODE].signals["rdma.function_count"] == 4


@given(*[st.text("0123456789abcdef", min_size=4, max_size=4)] * 3, st.booleans())
def test_only_nvidia_functions_are_gpus(vendor: str, device: str, class_code: str, has_rdma: bool) -> None:
    target = function_target(
        GPU, FunctionIdentity(vendor, device, class_code, virtual=False), has_rdma=has_rdma
    )
    assert (target == "gpu/0000:3b:00") == (vendor == "10de" and class_code in {"0300", "0302"})
    assert target is not None or not has_rdma


def test_this_machine() -> None:
    assert by_target(PciSource(), ThisMachine())[NODE].status in {"read", "absent"}


@pytest.mark.parametrize(
    ("domain", "translates"),
    [("DMA-FQ", True), ("DMA", True), ("identity", False), ("unmanaged", None), ("what", None)],
)
def test_domain_of_a_gpu_shows_whether_the_iommu_translates(domain: str, translates: bool | None) -> None:
    fake = machine()
    fake.files[f"{BUS}/{GPU}/iommu_group/type"] = f"{domain}\n"
    gpu = by_target(PciSource(), fake)["gpu/0000:3b:00"]
    assert gpu.signals.get("pci.iommu_translates") is translates
    assert ("pci.iommu_translates" in gpu.unreadable) == (domain == "what")
