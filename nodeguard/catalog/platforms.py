"""The platforms of checks/platforms: one YAML file each, read into the model's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from nodeguard.config.yaml_document import YamlDocument, convert, load_yaml
from nodeguard.model.platform import Platform, PlatformMatch

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

_Count = Annotated[int, Meta(ge=0)] | UnsetType
_Names = Annotated[tuple[str, ...], Meta(min_length=1)]


class _Match(PlatformMatch, frozen=True, forbid_unknown_fields=True):
    pass


class _Expect(Struct, forbid_unknown_fields=True):
    """What EXPECTATIONS names, with the kind of value that each has."""

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
    ports: _Count = UNSET
    port_rate_gbps: _Count = UNSET
    port_link_layer: Literal["InfiniBand", "Ethernet", "EFA"] | UnsetType = UNSET
    port_devices: _Names | UnsetType = UNSET


class _File(Struct, forbid_unknown_fields=True):
    id: str
    title: str
    match: Annotated[tuple[_Match, ...], Meta(min_length=1)]
    expect: _Expect
    basis: str
    notes: tuple[str, ...] = ()


def load_platforms(folder: Path | Traversable) -> tuple[Platform, ...]:
    """Platforms of a folder, each in a file of its id's name.

    Those that are known by a name of the machine stand first, those that are known by their board alone last:
    of several that match, the first is the one that says most. Raises CatalogueError where a file says what
    cannot be, or two platforms are known by the same words.
    """
    found: list[Platform] = []
    known: dict[PlatformMatch, str] = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            located = load_yaml(path)
            platform = _platform(located, path.name.removesuffix(".yaml"))
            for at, match in enumerate(platform.match):
                if match in known:
                    problem = f"{known[match]} is known by the same words"
                    raise located.error(("match", at), problem, "take them away from one of the two")
                known[match] = platform.id
            found.append(platform)
    return tuple(sorted(found, key=_by_board))


def _platform(located: YamlDocument, name: str) -> Platform:
    file = convert(located, _File)
    if file.id != name:
        raise located.error(
            ("id",), f"{file.id!r} is not the file's name", f"write {name}, or rename the file"
        )
    matches = tuple(PlatformMatch(**asdict(match)) for match in file.match)
    for at, match in enumerate(matches):
        if not (match.product_name or match.instance_type or match.gpu):
            problem = "names neither product_name nor instance_type nor gpu, so it would match too much"
            raise located.error(("match", at), problem, "add one of them")
    return Platform(file.id, file.title, matches, dict(_expected(file.expect)), file.basis, file.notes)


def _expected(expect: _Expect) -> Iterator[tuple[str, bool | int | str | tuple[str, ...]]]:
    return ((name, value) for name, value in asdict(expect).items() if value is not UNSET)


def _by_board(platform: Platform) -> bool:
    return not any(match.product_name or match.instance_type for match in platform.match)
