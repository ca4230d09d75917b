"""The platforms of checks/platforms, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.catalog.platforms import _Expect, load_platforms
from nodeguard.config.errors import ConfigError
from nodeguard.model.platform import EXPECTATIONS, Platform, PlatformMatch
from tests.paths import ROOT

PLATFORMS = load_platforms(ROOT / "checks" / "platforms")
BY_ID = {platform.id: platform for platform in PLATFORMS}
CLOUDS = [item for item in PLATFORMS if item.id.startswith(("aws-", "azure-", "gcp-"))]


def test_the_platforms_are_there() -> None:
    assert set(BY_ID) == {
        *("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "gb200-tray"),
        *("hgx-a100", "hgx-h100", "hgx-h200", "hgx-b200"),
        *(
            "azure-nd-a100-v4",
            "azure-nd-h100-v5",
            "azure-nd-h200-v5",
            "azure-nd-gb200-v6",
            "azure-nd-gb300-v6",
        ),
        *("aws-p4d", "aws-p4de", "aws-p5", "aws-p5e", "aws-p5en", "aws-p6-b200", "aws-p6-b300"),
        *("gcp-a3-high", "gcp-a3-mega", "gcp-a3-ultra", "gcp-a4-high", "gcp-a4x", "gcp-a4x-max"),
        *(
            "oci-a100",
            "oci-h100",
            "oci-h200",
            "oci-b200",
            "oci-b300",
            "oci-gb200",
            "oci-gb200-v3",
            "oci-gb300",
        ),
    }
    assert all(platform.source and platform.title for platform in PLATFORMS)


def test_the_names_that_may_be_expected_are_those_of_the_model() -> None:
    assert set(_Expect.__struct_fields__) == set(EXPECTATIONS)


def test_a_platform_is_known_by_exact_words() -> None:
    assert BY_ID["dgx-h100"].match == (PlatformMatch(sys_vendor="NVIDIA", product_name="DGXH100"),)
    assert BY_ID["hgx-h100"].match == (PlatformMatch(gpu="NVIDIA H100 80GB HBM3", nvswitches=1),)
    assert {match.nvswitches for match in BY_ID["hgx-a100"].match} == {1}
    assert PlatformMatch(sys_vendor="Amazon EC2", product_name="p5.48xlarge") in BY_ID["aws-p5"].match
    assert PlatformMatch(instance_type="a3-highgpu-8g") in BY_ID["gcp-a3-high"].match
    tag = "7783-7084-3265-9085-8269-3286-77"
    assert PlatformMatch(chassis_asset_tag=tag, gpu="NVIDIA H200") in BY_ID["azure-nd-h200-v5"].match


def test_a_name_of_the_machine_goes_before_its_board() -> None:
    assert [item.id for item in PLATFORMS][-3:] == ["hgx-a100", "hgx-h100", "hgx-h200"]


def test_what_is_expected_of_some_platforms() -> None:
    dgx = BY_ID["dgx-h100"].expect
    expected = (8, 18, 26562, 4)
    assert (dgx["gpus"], dgx["nvlink_links"], dgx["nvlink_speed_mbps"], dgx["nvswitches"]) == expected
    assert (dgx["pcie_gen"], dgx["pcie_width"], dgx["ports"], dgx["port_rate_gbps"]) == (5, 16, 8, 400)
    tray = BY_ID["gb200-tray"].expect
    assert (tray["gpus"], tray["nvlink_speed_mbps"], tray["nvswitches"]) == (4, 53125, 0)
    assert tray["fabric_manager"] is False
    assert (BY_ID["aws-p5"].expect["ports"], BY_ID["aws-p5"].expect["port_link_layer"]) == (32, "EFA")
    assert BY_ID["gcp-a3-high"].expect["ports"] == BY_ID["gcp-a3-mega"].expect["ports"] == 0
    assert (BY_ID["dgx-b300"].expect["ports"], BY_ID["dgx-b300"].expect["port_rate_gbps"]) == (8, 800)
    assert (BY_ID["gcp-a4x-max"].expect["gpus"], BY_ID["gcp-a4x-max"].expect["ports"]) == (4, 8)
    assert BY_ID["dgx-a100"].expect["nvlink_links"] == 12


@pytest.mark.parametrize("platform", CLOUDS, ids=lambda item: item.id)
def test_a_virtual_machine_is_not_held_to_its_pcie_links(platform: Platform) -> None:
    assert not [name for name in platform.expect if name.startswith("pcie_")]


def test_named_devices_are_as_many_as_the_ports() -> None:
    named = [item.expect for item in PLATFORMS if "port_devices" in item.expect]
    assert named
    for expect in named:
        devices = expect["port_devices"]
        assert isinstance(devices, tuple)
        assert len(set(devices)) == expect["ports"]


FILE = "id: one\ntitle: One\nmatch:\n- {product_name: one}\nexpect: {gpus: 8}\nsource: a page\n"


def test_a_platform_is_read(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        FILE.replace("{gpus: 8}", "{gpus: 8, ecc: false, port_devices: [efa_0]}")
    )
    (tmp_path / "README.md").write_text("not a platform")
    (platform,) = load_platforms(tmp_path)
    assert platform.expect == {"gpus": 8, "ecc": False, "port_devices": ("efa_0",)}
    assert (platform.id, platform.source, platform.notes) == ("one", "a page", ())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: one", "id: two", "1: id: 'two' is not the file's name: write one, or rename the file"),
        ("{gpus: 8}", "{gpu: 8}", "5: gpu: is not known here: use one of gpus, gpu_name, "),
        ("{gpus: 8}", "{gpus: eight}", "5: gpus: 'eight' does not fit: write a whole number"),
        ("{gpus: 8}", "{gpus: -1}", "5: gpus: -1 does not fit: write a whole number >= 0"),
        ("{gpus: 8}", "{ecc: on}", "5: ecc: 'on' does not fit: write true or false"),
        (
            "{gpus: 8}",
            "{port_link_layer: RoCE}",
            "5: port_link_layer: 'RoCE' is not valid: use one of EFA, Ethernet, ",
        ),
        ("{gpus: 8}", "{port_devices: efa}", "5: port_devices: 'efa' does not fit: write a list"),
        (
            "match:\n- {product_name: one}",
            "match: []",
            "3: match: a list does not fit: write a list of length >= 1",
        ),
        ("{product_name: one}", "{}", "4: match[0]: names neither product_name nor instance_type nor gpu, "),
        ("{product_name: one}", "{sys_vendor: A}", "4: match[0]: names neither product_name nor "),
        ("{product_name: one}", "{product: one}", "4: product: is not known here: use one of product_name, "),
        ("source: a page\n", "", "1: source: is missing: add it"),
    ],
)
def test_a_platform_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "one.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_platforms(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/one.yaml:{message}")


def test_two_platforms_are_not_known_by_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(FILE)
    (tmp_path / "two.yaml").write_text(FILE.replace("id: one", "id: two"))
    with pytest.raises(ConfigError, match=r"two\.yaml:4: match\[0\]: one has the same match: remove"):
        load_platforms(tmp_path)
