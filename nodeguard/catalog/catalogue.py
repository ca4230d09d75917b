"""The whole catalogue: loaded compiled or from its YAML, with the checks that a site adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nodeguard.model.catalogue import Catalogue, LogPattern
from nodeguard.model.signal import Signal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

COMPILED = "compiled.msgpack"

# Returns all signals by name. Log patterns define some of them.
SignalFactory = Callable[[tuple[LogPattern, ...]], Mapping[str, Signal]]

# Name, size and modification time of each file, to detect an outdated compiled catalogue in a working tree.
Fingerprint = tuple[tuple[str, int, int], ...]


class CompiledCatalogue(msgspec.Struct, frozen=True):
    """A compiled catalogue. source_fingerprint: of its YAML in a working tree; empty in a package."""

    source_fingerprint: Fingerprint
    catalogue: Catalogue


def builtin_folder() -> Traversable:
    """Return the folder of the package `nodeguard.checks`.

    By its path, because importlib.resources imports zipfile: 0.4 MiB for as long as the agent runs.
    """
    return Path(import_module("nodeguard.checks").__path__[0])


def load_builtin(signals: SignalFactory) -> Catalogue:
    """Return nodeguard's own catalogue, from the compiled file unless that is missing or outdated."""
    folder = builtin_folder()
    file = folder / COMPILED
    if file.is_file():
        try:
            compiled = msgspec.msgpack.decode(file.read_bytes(), type=CompiledCatalogue)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return compile_catalogue(folder, signals)
        if not compiled.source_fingerprint or compiled.source_fingerprint == fingerprint(folder):
            return compiled.catalogue
    return compile_catalogue(folder, signals)


def compile_catalogue(folder: Traversable, signals: SignalFactory) -> Catalogue:
    """Return the catalogue of a folder's YAML: *.yaml, tables/ and platforms/. Raises ConfigError."""
    from nodeguard.catalog.check_files import combine_check_files, read_check_file  # noqa: PLC0415 - parses YAML
    from nodeguard.catalog.fault_classes import load_fault_classes  # noqa: PLC0415
    from nodeguard.catalog.platforms import load_platforms  # noqa: PLC0415
    from nodeguard.catalog.program_messages import load_program_messages  # noqa: PLC0415
    from nodeguard.catalog.tables import load_tables  # noqa: PLC0415
    from nodeguard.catalog.words import load_alerts, load_words  # noqa: PLC0415

    tables = load_tables(folder / "tables")
    all_signals = signals(tables.patterns)
    checks, disabled = combine_check_files(read_check_file(path, all_signals) for path in _yaml_files(folder))
    platforms = load_platforms(folder / "platforms")
    classes = load_fault_classes(folder / "tables", (check.id for check in checks))
    messages = load_program_messages(folder / "tables", (check.id for check in checks))
    return replace(
        tables,
        checks=checks,
        disabled=disabled,
        platforms=platforms,
        fault_classes=classes,
        program_messages=messages,
        words=load_words(folder / "tables"),
        alerts=load_alerts(folder / "tables"),
    )


def encode_catalogue(catalogue: Catalogue, source_fingerprint: Fingerprint = ()) -> bytes:
    """Return a catalogue in its compiled form."""
    return msgspec.msgpack.encode(CompiledCatalogue(source_fingerprint, catalogue))


def fingerprint(folder: Traversable) -> Fingerprint:
    """Return the fingerprint of a folder's YAML, with modification times in nanoseconds.

    Empty for a folder that is not on a file system.
    """
    if not isinstance(folder, Path):
        return ()
    paths = sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])
    return tuple(
        (str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in paths
    )


def add_site_checks(
    catalogue: Catalogue, folders: Iterable[Traversable], signals: Mapping[str, Signal]
) -> Catalogue:
    """Return a catalogue with the checks and fault classes that a site's folders override, add and disable.

    Later folders take precedence. Raises ConfigError where a file is invalid: then no file of the folders
    may be used.
    """
    from nodeguard.catalog.check_files import (  # noqa: PLC0415 - needed only with site files
        CheckFile,
        combine_check_files,
        list_site_files,
        read_check_file,
        require_classes_of_checks,
        require_signals_of_targets,
        require_unique_ids,
    )
    from nodeguard.catalog.fault_classes import combine_fault_classes  # noqa: PLC0415

    files = [CheckFile("the built-in catalogue", catalogue.checks, (), {})]
    for folder in folders:
        of_folder = [read_check_file(path, signals) for path in list_site_files(folder)]
        require_unique_ids(of_folder)
        files += of_folder
    checks, disabled = combine_check_files(files)
    require_classes_of_checks(files, checks)
    require_signals_of_targets(files, catalogue.checks, signals)
    added = [fault_class for file in files for fault_class in file.fault_classes]
    return replace(
        catalogue,
        checks=checks,
        disabled={**catalogue.disabled, **disabled},
        fault_classes=combine_fault_classes(catalogue.fault_classes, added),
    )


def _yaml_files(folder: Traversable) -> list[Traversable]:
    paths = [path for path in folder.iterdir() if path.name.endswith(".yaml") and path.is_file()]
    return sorted(paths, key=lambda path: path.name)
