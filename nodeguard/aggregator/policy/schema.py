"""Schema of the policy file: its fields, their types and defaults. Keys in the file are lowerCamelCase."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeguard.config.amounts import write_amounts
from nodeguard.config.file_version import FileVersion
from nodeguard.model.amounts import END
from nodeguard.model.diagnosis import DiagnosisSettings
from nodeguard.model.policy import NodePattern, PolicyFields

LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"^([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?{END}",
        max_length=317,
        examples=["topology.kubernetes.io/zone", "rack"],
    ),
]
LabelKeys = Annotated[tuple[LabelKey, ...], Meta(min_length=1, max_length=10)]
_STEP = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
DomainPath = Annotated[
    str, Meta(pattern=rf"^{_STEP}(/{_STEP}){{0,9}}{END}", max_length=253, examples=["row-1/r12", "feed-a"])
]
TableFile = Annotated[
    str, Meta(pattern=rf"^[^\x00-\x1f]+{END}", min_length=1, max_length=255, examples=["racks.csv"])
]


class TopologiesSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Label keys of topologies, coarsest first; they replace the built-in label keys."""

    fabric: LabelKeys | UnsetType = UNSET
    nvlink: LabelKeys | UnsetType = UNSET
    rack: LabelKeys | UnsetType = UNSET
    power: LabelKeys | UnsetType = UNSET
    zone: LabelKeys | UnsetType = UNSET


class NodeLocationSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The failure domains of the nodes with a name or a pattern, coarsest first, separated by `/`; or the
    `file` of a table beside this file. A name precedes patterns; the first pattern that matches applies.
    """

    file: TableFile | UnsetType = UNSET
    node: NodePattern | UnsetType = UNSET
    fabric: DomainPath | UnsetType = UNSET
    nvlink: DomainPath | UnsetType = UNSET
    rack: DomainPath | UnsetType = UNSET
    power: DomainPath | UnsetType = UNSET
    zone: DomainPath | UnsetType = UNSET


NodeLocationsSpec = TableFile | Annotated[tuple[NodeLocationSpec, ...], Meta(max_length=10_000)]


class PolicySpec(PolicyFields, frozen=True):
    """The policy of nodeguard's aggregator: what it may mark, how much, and when marks are released.

    version: of the file; another one is refused. defaultMode: for checks without a matching rule in
    `modeRules`. nodeLocations: the file of a table, or rows. pause: set no new marks.
    """

    version: FileVersion = 1
    topologies: TopologiesSpec = TopologiesSpec()
    locations: NodeLocationsSpec = field(name="nodeLocations", default=())
    diagnosis: DiagnosisSettings = DiagnosisSettings()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the policy file, for editors."""
    schema = write_amounts(msgspec.json.schema(PolicySpec))
    for definition in schema["$defs"].values():
        definition["description"] = " ".join(definition["description"].split())
    title = "Policy of nodeguard's aggregator"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
