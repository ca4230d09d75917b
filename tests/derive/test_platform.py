from __future__ import annotations

import pytest

from nodeguard.derive.derive import match_platform
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Observation
from nodeguard.model.platform import Platform, PlatformMatch
from tests.derive.look import GPUS, machine, seen, tables


def known(name: str, *match: PlatformMatch) -> Platform:
    return Platform(name, name, match, {}, "")


PLATFORMS = (
    known("dgx", PlatformMatch(product_name="DGXH100", sys_vendor="NVIDIA")),
    known("cloud", PlatformMatch(instance_type="p5.48xlarge"), PlatformMatch(product_name="p5.48xlarge")),
    known("board", PlatformMatch(gpu="NVIDIA H200", nvswitches=1)),
    known("nothing", PlatformMatch()),
)


def node(product: str = "", *, names: tuple[str, ...] = (), switches: int | None = None) -> LatestReadings:
    rows = [seen("host", "node", {"host.product_name": product, "host.sys_vendor": "NVIDIA"})]
    rows += [seen("nvml", gpu, {"gpu.name": name}) for gpu, name in zip(GPUS, names, strict=False)]
    if switches is not None:
        rows.append(seen("pci", "node", {"nvswitch.pci_count": switches}))
    return machine(*rows)


@pytest.mark.parametrize(
    ("look", "instance", "name"),
    [
        (node("DGXH100"), "", "dgx"),
        (node("DGXH100 rev. B"), "", None),
        (node(), "p5.48xlarge", "cloud"),
        (node("p5.48xlarge"), "", "cloud"),
        (node(), "p5", None),
        (node(names=("NVIDIA H200",) * 4, switches=4), "", "board"),
        (node(names=("NVIDIA H200",) * 4, switches=3), "", "board"),
        (node(names=("NVIDIA H200",) * 4, switches=0), "", None),
        (node(names=("NVIDIA H200",) * 4), "", None),
        (node(names=("NVIDIA GH200",) * 4, switches=4), "", None),
        (node(names=("NVIDIA H200", "NVIDIA H100"), switches=4), "", None),
        (node(), "", None),
    ],
)
def test_a_platform_is_known_to_the_letter_or_not_at_all(
    look: LatestReadings, instance: str, name: str | None
) -> None:
    result = match_platform(look, PLATFORMS, "", instance, "")
    assert (result.id if result else None) == name


def test_what_a_site_names_counts() -> None:
    result = match_platform(node("DGXH100"), PLATFORMS, "board", "", "")
    assert result is not None
    assert result.id == "board"
    assert match_platform(node("DGXH100"), PLATFORMS, "unheard-of", "", "") is None


def test_what_breaks_does_not_make_another_machine_of_it() -> None:
    result = [match_platform(node(product), PLATFORMS, "", "", "board") for product in ("", "DGXH100")]
    assert [item.id if item else None for item in result] == ["board", "dgx"]


def test_a_platform_stays_while_what_it_is_known_by_cannot_be_read() -> None:
    names = [seen("nvml", gpu, {"gpu.name": "NVIDIA H200"}) for gpu in GPUS]
    switches = seen("pci", "node", {"nvswitch.pci_count": 4})
    host = Observation("host", "node", unreadable={"host.product_name": "refused"})
    look = machine(*names, switches, host)
    result = [match_platform(look, PLATFORMS, "", "", before) for before in ("dgx", "")]
    assert [item.id if item else None for item in result] == ["dgx", "board"]


def test_no_machine_is_taken_for_two_of_the_platforms_that_come_along() -> None:
    rows = [match for platform in tables().platforms for match in platform.match]
    assert len(rows) == len(set(rows))
