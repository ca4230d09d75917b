"""Schema of the policy file: its fields, their types and defaults. Keys in the file are lowerCamelCase."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeguard.config.amounts import write_amounts
from nodeguard.config.file_version import FileVersion
from nodeguard.config.schema_text import with_clean_descriptions
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
    """Label keys of topologies. They replace the built-in label keys of known platforms."""

    fabric: LabelKeys | UnsetType = UNSET
    """Label keys of the network switches, coarsest first."""
    nvlink: LabelKeys | UnsetType = UNSET
    """Label keys of the NVLink domain, coarsest first."""
    rack: LabelKeys | UnsetType = UNSET
    """Label keys of the rack, coarsest first."""
    power: LabelKeys | UnsetType = UNSET
    """Label keys of the power feed, coarsest first."""
    zone: LabelKeys | UnsetType = UNSET
    """Label keys of the zone, coarsest first."""


class NodeLocationSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The failure domains of some nodes, or the file of a table of them. A name precedes patterns; the first
    pattern that matches applies.
    """

    file: TableFile | UnsetType = UNSET
    """Name of a table beside this file, with the columns `node` and those of topologies. A row with it has no
    other key."""
    node: NodePattern | UnsetType = UNSET
    """Name of the node, or a pattern."""
    fabric: DomainPath | UnsetType = UNSET
    """Path of the nodes' network switches, coarsest first, such as `row-1/r12`."""
    nvlink: DomainPath | UnsetType = UNSET
    """Path of the nodes' NVLink domain, coarsest first, such as `row-1/r12`."""
    rack: DomainPath | UnsetType = UNSET
    """Path of the nodes' rack, coarsest first, such as `row-1/r12`."""
    power: DomainPath | UnsetType = UNSET
    """Path of the nodes' power feed, coarsest first, such as `row-1/r12`."""
    zone: DomainPath | UnsetType = UNSET
    """Path of the nodes' zone, coarsest first, such as `row-1/r12`."""


NodeLocationsSpec = TableFile | Annotated[tuple[NodeLocationSpec, ...], Meta(max_length=10_000)]


class PolicySpec(PolicyFields, frozen=True):
    """The policy of nodeguard's aggregator: what it may mark, how much, and when marks are released."""

    version: FileVersion = 1
    """Version of the file. Another one is refused."""
    topologies: TopologiesSpec = TopologiesSpec()
    """Label keys from which failure domains are read."""
    locations: NodeLocationsSpec = field(name="nodeLocations", default=())
    """Failure domains of nodes without labels: the name of a table beside this file, or rows."""
    diagnosis: DiagnosisSettings = DiagnosisSettings()
    """When a failure domain explains the findings of many nodes."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the policy file, for editors."""
    from nodeguard.config.field_descriptions import with_field_descriptions  # noqa: PLC0415 - parses source code

    schema = write_amounts(msgspec.json.schema(PolicySpec))
    schema = with_clean_descriptions({**schema, "$defs": with_field_descriptions(schema["$defs"])})
    title = "Policy of nodeguard's aggregator"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
