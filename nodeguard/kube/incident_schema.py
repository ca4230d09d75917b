"""The schemas of NodeIncidents and NodeActions by field: those of this version, and how served ones differ.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nodeguard.kube.action_object import ActionSpec, ActionStatus
from nodeguard.kube.incident_object import IncidentSpec, IncidentStatus

# The remedy for a CustomResourceDefinition of another version.
REMEDY = "apply crd-nodeincidents.yaml of the aggregator's version; the chart does with crd.install: true"


class FieldSchema(Struct, frozen=True):
    """The schema of one field."""

    type: str
    """JSON type: `string`, `integer`, `boolean`, `object` or `array`."""

    values: frozenset[str] = frozenset()
    """Permitted values; empty for all."""

    limits: Mapping[str, int] = {}
    """Limits by keyword of JSON Schema: maxLength, minLength, maxItems, minimum."""

    formats: Mapping[str, str] = {}
    """Formats by keyword of JSON Schema: format, pattern."""


_LIMITS = ("maxLength", "minLength", "maxItems", "minimum")
_FORMATS = ("format", "pattern")


def schema_fields(schema: Mapping[str, Any], path: str = "") -> dict[str, FieldSchema]:
    """Return the fields of a JSON schema by path, such as `status.symptoms[].health`.

    schema: of an object; `$ref` and `null` must be resolved.
    """
    fields: dict[str, FieldSchema] = {}
    for name, content in schema.get("properties", {}).items():
        fields |= _with_children(content, f"{path}.{name}" if path else name)
    return fields


def _with_children(content: Mapping[str, Any], path: str) -> dict[str, FieldSchema]:
    fields = {
        path: FieldSchema(
            content.get("type", ""),
            frozenset(content.get("enum", ())),
            {keyword: content[keyword] for keyword in _LIMITS if keyword in content},
            {keyword: content[keyword] for keyword in _FORMATS if keyword in content},
        )
    }
    if "items" in content:
        fields |= _with_children(content["items"], f"{path}[]")
    return fields | schema_fields(content, path)


def own_fields() -> dict[str, FieldSchema]:
    """Return the fields of a NodeIncident as this version writes and reads them."""
    return _fields_of(IncidentSpec, IncidentStatus)


def own_action_fields() -> dict[str, FieldSchema]:
    """Return the fields of a NodeAction as this version writes and reads them."""
    return _fields_of(ActionSpec, ActionStatus)


def _fields_of(spec_type: type[Struct], status_type: type[Struct]) -> dict[str, FieldSchema]:
    parts, definitions = msgspec.json.schema_components((spec_type, status_type), ref_template="{name}")
    spec, status = (_resolved(part, definitions) for part in parts)
    return schema_fields({"properties": {"spec": spec, "status": status}})


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema without references, and without the alternative `null`."""
    if isinstance(schema, list):
        return [_resolved(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"]], definitions)
    if "anyOf" in schema:
        [schema] = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
        return _resolved(schema, definitions)
    return {keyword: _resolved(content, definitions) for keyword, content in schema.items()}


def missing_from(served: Mapping[str, FieldSchema], own_schema: Mapping[str, FieldSchema]) -> Iterator[str]:
    """Yield in words what a served schema does not store of the objects that this version writes.

    own_schema: of this version.
    """
    for path, own in own_schema.items():
        field = served.get(path)
        if field is None:
            parent = path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]
            if parent in served or not parent:
                yield f"{path} is missing"
        elif field.type != own.type:
            yield f"{path} is of type {field.type or 'unknown'} instead of {own.type}"
        else:
            yield from _narrower(path, field, own)


def _narrower(path: str, served: FieldSchema, own: FieldSchema) -> Iterator[str]:
    refused = own.values - served.values if served.values else frozenset[str]()
    if refused or (served.values and not own.values):
        yield f"{path} refuses {', '.join(sorted(refused)) or 'most values'}"
    for keyword, limit in served.limits.items():
        own_limit = own.limits.get(keyword)
        is_narrower = own_limit is None or (
            limit < own_limit if keyword.startswith("max") else limit > own_limit
        )
        if is_narrower:
            yield f"{path} has {keyword} {limit} instead of {'none' if own_limit is None else own_limit}"
    for keyword, value in served.formats.items():
        if own.formats.get(keyword) != value:
            yield f"{path} has {keyword} {value} instead of {own.formats.get(keyword, 'none')}"


def unknown_to_this_version(
    served: Mapping[str, FieldSchema], own_schema: Mapping[str, FieldSchema]
) -> tuple[str, ...]:
    """Return the fields of a served schema that this version neither writes nor reads."""
    return tuple(path for path in served if path not in own_schema)
