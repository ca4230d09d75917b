"""Fault classes, loaded from checks/tables/fault-classes.yaml and from a site's files of checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.config.errors import FieldPath
from nodeguard.config.units import parse_duration
from nodeguard.config.yaml_document import YamlDocument, read_yaml, require_unique
from nodeguard.model.diagnosis import STALE_CHECK, FaultClass, Guidance, VoteTopology
from nodeguard.model.finding import Action
from nodeguard.model.projection import project

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

Share = Annotated[float, Meta(gt=0.0, le=1.0)]
Topology = (
    Literal["fabric", "nvlink", "rack", "power", "zone"]
    | Literal["catalogue", "agent", "driver", "vbios", "firmware", "kernel"]
)


class VoteTopologySchema(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"child": "child_share", "votes": "child_votes"},
):
    """A topology of a fault class. nodeguard.model.diagnosis.VoteTopology documents the fields."""

    topology: Topology
    share: Share = VoteTopology("").share
    child: Share = VoteTopology("").child
    votes: Annotated[int, Meta(ge=1, le=1_000)] = VoteTopology("").votes
    max_child_share: Share = VoteTopology("").max_child_share


class FaultClassSchema(Struct, frozen=True, forbid_unknown_fields=True):
    """One fault class. nodeguard.model.diagnosis.FaultClass documents the fields."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\Z", max_length=63)]
    phrase: Annotated[str, Meta(min_length=1, max_length=100)]
    checks: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
    topologies: Annotated[tuple[VoteTopologySchema, ...], Meta(min_length=1, max_length=11)]
    windows: Annotated[tuple[str, ...], Meta(min_length=1, max_length=5)]
    share: Share
    daily_rate: Annotated[float, Meta(gt=0.0, le=1_000.0)] = 0.01
    weak: bool = False
    lasting: bool = False
    job_start_checks: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    action: Action = Action.NONE
    guidance: Guidance | None = None


def load_fault_classes(folder: Path | Traversable, checks: Iterable[str]) -> tuple[FaultClass, ...]:
    """Return the fault classes of fault-classes.yaml in a folder. checks: ids of all checks.

    Raises ConfigError for an invalid file.
    """
    document, rows = read_yaml(folder / "fault-classes.yaml", tuple[FaultClassSchema, ...])
    classes = parse_fault_classes(document, (), rows)
    require_matching_checks(document, (), classes, checks)
    return classes


def parse_fault_classes(
    document: YamlDocument, path: FieldPath, rows: Sequence[FaultClassSchema]
) -> tuple[FaultClass, ...]:
    """Return the fault classes of the rows of a file. path: of the rows. Raises ConfigError."""
    require_unique(document, (((*path, index, "name"), row.name) for index, row in enumerate(rows)))
    return tuple(_fault_class(document, (*path, index), row) for index, row in enumerate(rows))


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


def _fault_class(document: YamlDocument, path: FieldPath, row: FaultClassSchema) -> FaultClass:
    topologies = [topology.topology for topology in row.topologies]
    require_unique(
        document,
        (((*path, "topologies", index, "topology"), name) for index, name in enumerate(topologies)),
    )
    return project(
        FaultClass,
        row,
        topologies=tuple(project(VoteTopology, topology) for topology in row.topologies),
        windows=tuple(_windows(document, (*path, "windows"), row.windows)),
    )


def _windows(document: YamlDocument, path: FieldPath, texts: Iterable[str]) -> Iterator[float]:
    for index, text in enumerate(texts):
        try:
            yield parse_duration(text)
        except ValueError:
            problem = f"{text!r} is no duration"
            raise document.error((*path, index), problem, "write it like 30s, 5m, 24h or 7d") from None
