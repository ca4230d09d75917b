from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model import target as slot
from nodeguard.model.target import NODE, TARGET_KINDS, target_order

HEX = st.sampled_from("0123456789abcdefABCDEF")


def digits(low: int, high: int) -> st.SearchStrategy[str]:
    return st.text(HEX, min_size=low, max_size=high)


ADDRESSES = st.builds(
    lambda domain, bus, device, function: f"{domain}{bus}:{device}{function}",
    st.just("") | digits(4, 8).map(lambda domain: f"{domain}:"),
    digits(2, 2),
    digits(2, 2),
    st.just("") | st.sampled_from("01234567").map(lambda function: f".{function}"),
)


@pytest.mark.parametrize(
    ("target", "printed"),
    [
        ("gpu/0000:3b:00", "00000000:3B:00.0"),
        ("gpu/10000:e1:00", "00010000:E1:00.0"),
        ("gpu/index-3", ""),
        ("nvswitch/0000:c1:00", ""),
        ("node", ""),
    ],
)
def test_address_as_nvml_prints_it(target: str, printed: str) -> None:
    assert slot.nvml_bus_id(target) == printed


@pytest.mark.parametrize(
    ("text", "address", "function"),
    [
        ("00000000:3B:00.0", "0000:3b:00", "0000:3b:00.0"),
        ("0000:3b:00.1", "0000:3b:00", "0000:3b:00.1"),
        ("0000:3b:00", "0000:3b:00", "0000:3b:00.0"),
        ("3b:00.0", "0000:3b:00", "0000:3b:00.0"),
        (" 0018:01:00.0\n", "0018:01:00", "0018:01:00.0"),
        ("00010000:e1:00.0", "10000:e1:00", "10000:e1:00.0"),
        ("0000:3b:00.8", None, None),
        ("000:3b:00.0", None, None),
        ("0000:3b:0", None, None),
        ("0000:3b:00.0 and more", None, None),
        ("PCI:0000:3b:00", None, None),
        ("", None, None),
        ("mlx5_0", None, None),
    ],
)
def test_a_pci_address_has_one_form(text: str, address: str | None, function: str | None) -> None:
    assert slot.bus_address(text) == address
    assert slot.function_address(text) == function


@given(ADDRESSES)
def test_an_address_in_its_form_stays(text: str) -> None:
    for normal in (slot.bus_address, slot.function_address):
        once = normal(text)
        assert once is not None
        assert normal(once) == once
        assert once == once.lower()


@given(ADDRESSES)
def test_one_place_has_one_slot_however_it_is_written(text: str) -> None:
    address = slot.bus_address(text)
    assert address is not None
    for make in (slot.gpu_target,):
        assert make(text) == make(text.upper()) == make(address)
    assert slot.pci_target(text) == slot.pci_target(text.upper())
    assert slot.gpu_target(text).removeprefix("gpu/") == address


@given(st.text())
def test_no_text_is_too_odd_for_a_slot(text: str) -> None:
    for make in (slot.gpu_target, slot.nvswitch_target, slot.pci_target, slot.filesystem_target):
        assert slot.target_kind(make(text)) in TARGET_KINDS
    assert slot.target_kind(text) in TARGET_KINDS
    assert slot.parent_target(slot.parent_target(text)) == NODE
    assert isinstance(slot.target_label(text), str)


GPU = slot.gpu_target("0000:3b:00")

SLOTS = [
    (NODE, "node", NODE, "node"),
    (GPU, "gpu", NODE, "GPU 0000:3b:00"),
    (slot.nvlink_target(GPU, 3), "nvlink", GPU, "GPU 0000:3b:00 NVLink 3"),
    (slot.nvswitch_target("0000:c1:00.0"), "nvswitch", NODE, "NVSwitch 0000:c1:00"),
    (slot.nvswitch_target("0000:05:00.2"), "nvswitch", NODE, "NVSwitch 0000:05:00.2"),
    (slot.port_target("mlx5_0", 1), "port", NODE, "port mlx5_0/1"),
    (slot.pci_target("0000:9C:00"), "pci", NODE, "PCI function 0000:9c:00.0"),
    (slot.filesystem_target("/var"), "fs", NODE, "/var"),
    (slot.filesystem_target("/mnt/gpu/nvlink/3"), "fs", NODE, "/mnt/gpu/nvlink/3"),
    ("disk/nvme0n1", "disk", NODE, "disk nvme0n1"),
    ("dimm/mc0/dimm3", "dimm", NODE, "DIMM mc0/dimm3"),
    ("service/kubelet", "service", NODE, "service kubelet"),
    (slot.probe_target("nccl", NODE), "probe", NODE, "probe nccl"),
    (slot.probe_target("burn-in", GPU), "probe", NODE, "GPU 0000:3b:00, probe burn-in"),
    (
        slot.probe_target("links", slot.nvlink_target(GPU, 3)),
        "probe",
        NODE,
        "GPU 0000:3b:00 NVLink 3, probe links",
    ),
    (slot.probe_target("write", slot.filesystem_target("/var")), "probe", NODE, "/var, probe write"),
    ("cabinet/7", "node", NODE, "cabinet 7"),
]


@pytest.mark.parametrize(("name", "kind", "parent", "label"), SLOTS)
def test_target_has_kind_parent_and_label(name: str, kind: str, parent: str, label: str) -> None:
    expected = (kind, parent, label)
    assert (slot.target_kind(name), slot.parent_target(name), slot.target_label(name)) == expected


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("gpu/00000000:3B:00.0", GPU),
        ("gpu/3b:00/nvlink/3", slot.nvlink_target(GPU, 3)),
        ("nvswitch/0000:C1:00.0", "nvswitch/0000:c1:00"),
        ("pci/9C:00.1", "pci/0000:9c:00.1"),
        ("gpu/index-3", "gpu/index-3"),
        ("gpu", "gpu"),
        ("port/mlx5_0/1", "port/mlx5_0/1"),
        ("fs:/Var", "fs:/Var"),
        (NODE, NODE),
    ],
)
def test_a_slot_has_one_name_however_its_address_is_written(written: str, normal: str) -> None:
    assert slot.normalize_target(written) == slot.normalize_target(normal) == normal


def test_every_kind_has_a_slot() -> None:
    assert {kind for _, kind, _, _ in SLOTS} == set(TARGET_KINDS)


def test_a_device_that_gives_no_address_goes_by_what_it_gives() -> None:
    assert slot.gpu_target("index-3") == "gpu/index-3"


@pytest.mark.parametrize(
    "targets",
    [
        ["gpu/0000:1b:00/nvlink/2", "gpu/0000:1b:00/nvlink/10", "gpu/0000:9a:00/nvlink/0"],
        ["port/mlx5_2/1", "port/mlx5_10/1"],
        ["gpu/0000:3b:00", "gpu/0000:c3:00", "node"],
        ["disk/nvme2n1", "disk/nvme10n1", "fs:/var"],
    ],
)
def test_targets_are_listed_by_number(targets: list[str]) -> None:
    assert sorted(set(targets), key=target_order) == targets
