"""The catalogue as a whole: compiled where it was, else from its YAML; with what a site adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nodeguard.model.catalogue import Catalogue, LogPattern
from nodeguard.model.signal import Signal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

COMPILED = "compiled.msgpack"

# All signals that exist, given the table of log patterns, which makes some.
SignalFactory = Callable[[tuple[LogPattern, ...]], Mapping[str, Signal]]

# Files with sizes and moments of change, to tell a compiled catalogue of a working tree from an old one.
Fingerprint = tuple[tuple[str, int, int], ...]


class CompiledCatalogue(msgspec.Struct, frozen=True):
    """A compiled catalogue. made_from: fingerprint of its YAML in a working tree, empty in a package."""

    source_fingerprint: Fingerprint
    catalogue: Catalogue


def load_builtin(signals: SignalFactory) -> Catalogue:
    """The catalogue that comes with nodeguard. Reads no YAML where it was compiled and is still true."""
    from importlib.resources import files  # noqa: PLC0415 - slow to import, and not wanted by who brings a catalogue

    folder = files("nodeguard.checks")
    compiled = folder / COMPILED
    if compiled.is_file():
        try:
            found = msgspec.msgpack.decode(compiled.read_bytes(), type=CompiledCatalogue)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return compile_catalogue(folder, signals)
        if not found.source_fingerprint or found.source_fingerprint == fingerprint(folder):
            return found.catalogue
    return compile_catalogue(folder, signals)


def compile_catalogue(folder: Traversable, signals: SignalFactory) -> Catalogue:
    """The catalogue of a folder's YAML: *.yaml, tables/ and platforms/. Raises CatalogueError."""
    from nodeguard.catalog.check_files import combine_check_files, read_check_file  # noqa: PLC0415 - only who compiles parses YAML
    from nodeguard.catalog.platforms import load_platforms  # noqa: PLC0415
    from nodeguard.catalog.tables import load_tables  # noqa: PLC0415

    tables = load_tables(folder / "tables")
    known = signals(tables.patterns)
    checks, disabled = combine_check_files(read_check_file(path, known) for path in _yaml(folder))
    platforms = load_platforms(folder / "platforms")
    return replace(tables, checks=checks, disabled=disabled, platforms=platforms)


def encode_catalogue(catalogue: Catalogue, made_from: Fingerprint = ()) -> bytes:
    """A catalogue in its compiled form."""
    return msgspec.msgpack.encode(CompiledCatalogue(made_from, catalogue))


def fingerprint(folder: Traversable) -> Fingerprint:
    """Names, sizes and moments of change (nanoseconds) of a working tree's YAML.

    Empty for what is no real folder.
    """
    from pathlib import Path  # noqa: PLC0415

    if not isinstance(folder, Path):
        return ()
    paths = sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])
    return tuple(
        (str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in paths
    )


def add_site_checks(
    catalogue: Catalogue, folders: Iterable[Traversable], signals: Mapping[str, Signal]
) -> Catalogue:
    """A catalogue with what the files of some folders override, add and disable, in the order of folders.

    Raises CatalogueError where one is wrong: then nothing of them is to be used.
    """
    from nodeguard.catalog.check_files import (  # noqa: PLC0415 - only where there are site files  # noqa: PLC0415
        CheckFile,
        combine_check_files,
        list_site_files,
        read_check_file,
        require_unique_ids,
    )

    files = [CheckFile("the built-in catalogue", catalogue.checks, (), {})]
    for folder in folders:
        of_folder = [read_check_file(path, signals) for path in list_site_files(folder)]
        require_unique_ids(of_folder)
        files += of_folder
    checks, disabled = combine_check_files(files)
    return replace(catalogue, checks=checks, disabled={**catalogue.disabled, **disabled})


def _yaml(folder: Traversable) -> list[Traversable]:
    paths = [path for path in folder.iterdir() if path.name.endswith(".yaml") and path.is_file()]
    return sorted(paths, key=lambda path: path.name)
