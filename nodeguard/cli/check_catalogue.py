"""The check catalogue of a command: the built-in checks, and the checks from the site's directories."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.catalog.catalogue import add_site_checks, load_builtin
from nodeguard.cli.usage import UsageError, did_you_mean
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check
from nodeguard.model.signal import Signal
from nodeguard.pipeline.signal_registry import all_signals

STDIN = "-"


def load_catalogue(
    folders: Sequence[str] = (), runbook_url_base: str = ""
) -> tuple[Catalogue, dict[str, Signal]]:
    """Return the catalogue with what some directories add or override, and all signals.

    folders: `-` reads one file from standard input. runbook_url_base: beginning of the runbook's address of
    each check, which ends with its id; empty for the pages of the project. Raises UsageError where a file is
    invalid, with a line for each error.
    """
    catalogue, signals = _load(folders)
    if runbook_url_base:
        checks = [replace(check, runbook=runbook_url_base + check.id) for check in catalogue.checks]
        catalogue = replace(catalogue, checks=tuple(checks))
    return catalogue, signals


def _load(folders: Sequence[str]) -> tuple[Catalogue, dict[str, Signal]]:
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415 - only site files need YAML

    catalogue = load_builtin(all_signals)
    signals = all_signals(catalogue.patterns)
    if not folders:
        return catalogue, signals
    with TemporaryDirectory(prefix="nodeguard-") if STDIN in folders else nullcontext("") as scratch:
        paths = [_from_stdin(scratch) if folder == STDIN else Path(folder) for folder in folders]
        try:
            return add_site_checks(catalogue, paths, signals), signals
        except ConfigError as error:
            first = str(error)
        errors = _file_errors(paths, signals) or [first]
        raise UsageError("\n".join(errors).replace(f"{scratch}/stdin.yaml", "standard input"))


def _from_stdin(scratch: str) -> Path:
    path = Path(scratch)
    (path / "stdin.yaml").write_bytes(sys.stdin.buffer.read())
    return path


def _file_errors(folders: Sequence[Path], signals: dict[str, Signal]) -> list[str]:
    """Return all errors of each file that do not depend on another file."""
    from nodeguard.catalog.check_files import check_file_errors, list_site_files  # noqa: PLC0415 - see above
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415

    errors: list[ConfigError] = []
    for folder in folders:
        try:
            files = list_site_files(folder)
        except ConfigError as error:
            errors.append(error)
            continue
        for path in files:
            errors += check_file_errors(path, signals)
    return [str(error) for error in errors]


def selected_checks(catalogue: Catalogue, options: Namespace) -> list[Check]:
    """Return the checks that --family and --health select. Raises UsageError for an unknown family."""
    families = parse_families(catalogue, options.family)
    return [
        check
        for check in catalogue.checks
        if (families is None or check.family in families)
        and (not options.health or check.health.value in options.health)
    ]


class Selection(NamedTuple):
    """The checks that a person selected. names: of families or checks; text: as in `the checks of gpu`."""

    checks: tuple[Check, ...]
    names: tuple[str, ...]
    text: str


def parse_selection(catalogue: Catalogue, names: Sequence[str], families: Sequence[str]) -> Selection | None:
    """Return the checks with some ids or patterns of ids, or of some families; None for all.

    Raises UsageError for both, for an unknown family, and for a name that no check has.
    """
    if names and families:
        raise UsageError("checks and --family cannot be used together: name the checks, or their families")
    selected = parse_families(catalogue, families)
    if selected is not None:
        checks = tuple(check for check in catalogue.checks if check.family in selected)
        listed = tuple(sorted(selected))
        return Selection(checks, listed, f"the checks of {', '.join(listed)}")
    for name in names:
        if name in catalogue.disabled:
            raise UsageError(f"check '{name}' is disabled by {catalogue.disabled[name]}")
        if not any(fnmatchcase(check.id, name) for check in catalogue.checks):
            hint = did_you_mean(name, [check.id for check in catalogue.checks])
            raise UsageError(f"no check is named '{name}': {hint}see nodeguard get checks")
    checks = tuple(check for check in catalogue.checks if any(fnmatchcase(check.id, name) for name in names))
    return Selection(checks, tuple(names), ", ".join(names)) if names else None


def parse_families(catalogue: Catalogue, texts: Sequence[str]) -> frozenset[str] | None:
    """Return the families in the values of an option; None for all. Raises UsageError for an unknown one."""
    if not texts:
        return None
    names = frozenset(name.strip() for text in texts for name in text.split(",") if name.strip())
    families = {check.family for check in catalogue.checks}
    if not names:
        raise UsageError(f"--family is empty: expected some of {', '.join(sorted(families))}")
    unknown = sorted(names - families)
    if unknown:
        hint = did_you_mean(unknown[0], families)
        raise UsageError(
            f"--family: '{unknown[0]}' is unknown: {hint}expected some of {', '.join(sorted(families))}"
        )
    return names
