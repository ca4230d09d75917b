"""The catalogue that a command works with: the built-in one, and what the site's folders add."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodeguard.catalog.catalogue import add_site_checks, load_builtin
from nodeguard.cli.usage import UsageError
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.signal import Signal
from nodeguard.pipeline.signal_registry import all_signals


def load_catalogue(folders: Sequence[str] = ()) -> tuple[Catalogue, dict[str, Signal]]:
    """The catalogue with what some folders override, and all signals.

    Raises UsageError where a file is wrong.
    """
    from nodeguard.config.yaml_document import ConfigError  # noqa: PLC0415 - brings what only site files need

    try:
        catalogue = load_builtin(all_signals)
        signals = all_signals(catalogue.patterns)
        if folders:
            catalogue = add_site_checks(catalogue, [Path(folder) for folder in folders], signals)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return catalogue, signals


def parse_families(catalogue: Catalogue, wanted: Sequence[str]) -> frozenset[str] | None:
    """Families that `--only`, each time it is given, names; None for all. Raises UsageError for one that is
    not there.
    """
    if not wanted:
        return None
    names = frozenset(name.strip() for names in wanted for name in names.split(",") if name.strip())
    there = {check.family for check in catalogue.checks}
    if not names:
        raise UsageError(f"--only names no family: write some of {', '.join(sorted(there))}")
    unknown = sorted(names - there)
    if unknown:
        raise UsageError(f"--only: '{unknown[0]}' is no family: it is one of {', '.join(sorted(there))}")
    return names
