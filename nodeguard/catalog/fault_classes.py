"""Fault classes, loaded from checks/tables/fault-classes.yaml and from a site's files of checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from nodeguard.config.amounts import decode_amounts
from nodeguard.config.errors import FieldPath
from nodeguard.config.yaml_document import YamlDocument, convert, load_yaml, require_unique
from nodeguard.model.diagnosis import STALE_CHECK, FaultClass

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path


def load_fault_classes(folder: Path | Traversable, checks: Iterable[str]) -> tuple[FaultClass, ...]:
    """Return the fault classes of fault-classes.yaml in a folder. checks: ids of all checks.

    Raises ConfigError for an invalid file.
    """
    document = load_yaml(folder / "fault-classes.yaml")
    classes = convert(document, tuple[FaultClass, ...], decode=decode_amounts)
    require_unique_classes(document, (), classes)
    require_matching_checks(document, (), classes, checks)
    return classes


def require_unique_classes(document: YamlDocument, path: FieldPath, classes: Sequence[FaultClass]) -> None:
    """Raise ConfigError for a second class of a name, or topology of a class. path: of the classes."""
    require_unique(document, (((*path, at, "name"), item.name) for at, item in enumerate(classes)))
    for at, item in enumerate(classes):
        names = [topology.topology for topology in item.topologies]
        place = (*path, at, "topologies")
        require_unique(document, (((*place, index, "topology"), name) for index, name in enumerate(names)))


def require_matching_checks(
    document: YamlDocument, path: FieldPath, classes: Iterable[FaultClass], checks: Iterable[str]
) -> None:
    """Raise ConfigError for a pattern that matches no check. checks: ids of all checks."""
    names = {*checks, STALE_CHECK}
    for index, fault_class in enumerate(classes):
        patterns = {"checks": fault_class.checks, "job_start_checks": fault_class.job_start_checks}
        for field, number, pattern in (
            (field, *item) for field, values in patterns.items() for item in enumerate(values)
        ):
            if not any(fnmatchcase(name, pattern) for name in names):
                place = (*path, index, field, number)
                raise document.error(place, f"{pattern!r} matches no check", "see `nodeguard checks`")


def combine_fault_classes(
    classes: Iterable[FaultClass], added: Iterable[FaultClass]
) -> tuple[FaultClass, ...]:
    """Return all fault classes; an added one replaces one with the same name."""
    return tuple({fault_class.name: fault_class for fault_class in (*classes, *added)}.values())
