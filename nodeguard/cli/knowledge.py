"""The catalogue that a command works with: the built-in one, and what the site's folders add."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodeguard.agent.signals import known
from nodeguard.catalog.catalogue import builtin, with_site
from nodeguard.cli.usage import UsageError
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.signal import Signal


def knowledge(folders: Sequence[str] = ()) -> tuple[Catalogue, dict[str, Signal]]:
    """The catalogue with what some folders override, and all signals.

    Raises UsageError where a file is wrong.
    """
    from nodeguard.catalog.located import CatalogueError  # noqa: PLC0415 - brings what only site files need

    try:
        catalogue = builtin(known)
        signals = known(catalogue.patterns)
        if folders:
            catalogue = with_site(catalogue, [Path(folder) for folder in folders], signals)
    except CatalogueError as error:
        raise UsageError(str(error)) from None
    return catalogue, signals


def families(catalogue: Catalogue, wanted: Sequence[str]) -> frozenset[str] | None:
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
