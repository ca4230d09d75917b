"""Platforms, loaded from checks/platforms with one YAML file each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from nodeguard.config.yaml_document import YamlDocument, convert, load_yaml
from nodeguard.model.platform import Platform, PlatformMatch
from nodeguard.model.projection import project

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

_Count = Annotated[int, Meta(ge=0)] | UnsetType
_Names = Annotated[tuple[str, ...], Meta(min_length=1)]


class _Expect(Struct, forbid_unknown_fields=True):
    """The fields of EXPECTATIONS with their types."""

    gpus: _Count = UNSET
    gpu_name: str | UnsetType = UNSET
    nvlink_links: _Count = UNSET
    nvlink_speed_mbps: _Count = UNSET
    nvswitches: _Count = UNSET
    fabric_manager: bool | UnsetType = UNSET
    c2c_links: _Count = UNSET
    pcie_gen: _Count = UNSET
    pcie_width: _Count = UNSET
    ecc: bool | UnsetType = UNSET
    iommu_translates: bool | UnsetType = UNSET
    ports: _Count = UNSET
    port_rate_gbps: _Count = UNSET
    port_link_layer: Literal["InfiniBand", "Ethernet", "EFA"] | UnsetType = UNSET
    port_devices: _Names | UnsetType = UNSET


class _File(Struct, forbid_unknown_fields=True):
    id: str
    title: str
    match: Annotated[tuple[PlatformMatch, ...], Meta(min_length=1)]
    expect: _Expect
    source: str
    notes: tuple[str, ...] = ()


def load_platforms(folder: Path | Traversable) -> tuple[Platform, ...]:
    """Return the platforms of a folder, each in a file named after its id.

    Platforms that a name of the machine identifies come first, those that only the board identifies last: of
    several that match a node, the first is the most specific. Raises ConfigError for an invalid file, and
    where two platforms have an equal match.
    """
    platforms: list[Platform] = []
    owners: dict[PlatformMatch, str] = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            document = load_yaml(path)
            platform = _platform(document, path.name.removesuffix(".yaml"))
            for index, match in enumerate(platform.match):
                if match in owners:
                    problem = f"{owners[match]} has the same match"
                    raise document.error(("match", index), problem, "remove it from one of the two")
                owners[match] = platform.id
            platforms.append(platform)
    return tuple(sorted(platforms, key=_is_identified_by_board))


def _platform(document: YamlDocument, name: str) -> Platform:
    file = convert(document, _File)
    if file.id != name:
        raise document.error(
            ("id",), f"{file.id!r} is not the file's name", f"write {name}, or rename the file"
        )
    for index, match in enumerate(file.match):
        if not (match.product_name or match.instance_type or match.gpu):
            problem = "names neither product_name nor instance_type nor gpu, so it would match too much"
            raise document.error(("match", index), problem, "add one of them")
    return project(Platform, file, expect=dict(_present_values(file.expect)))


def _present_values(expect: _Expect) -> Iterator[tuple[str, bool | int | str | tuple[str, ...]]]:
    return ((name, value) for name, value in asdict(expect).items() if value is not UNSET)


def _is_identified_by_board(platform: Platform) -> bool:
    return not any(match.product_name or match.instance_type for match in platform.match)
