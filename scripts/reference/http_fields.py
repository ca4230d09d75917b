"""Reference page of the fields of the HTTP API: a table for each struct, from the structs' docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from scripts.reference.markdown import code, page, table
from scripts.reference.schemas import open_api

# Meanings of fields that have the same meaning wherever their struct does not define another one.
COMMON = {
    "version": "Version of the response.",
    "at": "Time of the response.",
    "since": "When it began.",
    "age": "Seconds since then.",
    "message": "One sentence.",
    "reason": "The reason, in words.",
    "by": "Name of the operator.",
    "node": "Name of the node.",
    "pool": "Name of its pool.",
    "driver": "Version of the driver.",
    "vbios": "Version of the VBIOS.",
    "platform": "Name of its platform.",
    "gpus": "Number of its GPUs.",
    "serial": "Serial number.",
    "model": "Name of the model.",
    "domain": "Path of the domain; empty for none.",
    "topology": "The topology.",
    "fault_class": "Name of the fault class.",
    "fault_classes": "Names of its fault classes.",
    "check": "Id of the check.",
    "cause": "The check that explains most.",
    "target": "The target, such as `gpu/0000:3b:00`.",
    "targets": "All its targets.",
    "component": "Id of the hardware in the target.",
    "health": "Its health.",
    "data_status": "Whether the data is current.",
    "action": "The recommended action.",
    "state": "Its state.",
    "mark": "The mark.",
    "device": "The marked GPU; empty for the node.",
    "evidence": "The evidence, in words.",
    "seconds_left": "Seconds until then.",
    "jobs_omitted": "Number of other jobs.",
}

# A field named `latest_age` has the seconds since the time `latest`.
_AGE = "_age"

_INTRODUCTION = """\
For authors of programs: the fields of each response of the [HTTP API](http-api.md), and of the objects in
them. Times are RFC 3339, empty for none; ages and durations are seconds."""


def http_fields() -> str:
    """Return the page: for each object of the API its meaning and its fields, in the order of first use."""
    schemas: dict[str, dict[str, Any]] = yaml.safe_load(open_api())["components"]["schemas"]
    lines = [_INTRODUCTION, ""]
    for name, schema in schemas.items():
        if properties := schema.get("properties"):
            meanings = field_meanings(schema)
            rows = (
                (code(field), _type(content, schemas), meanings[field] or _about_type(content, schemas))
                for field, content in properties.items()
            )
            lines += [
                f"## {name}",
                "",
                " ".join(schema.get("description", "").split()),
                "",
                *table(("field", "type", "meaning"), rows),
            ]
    return page("Fields of the HTTP API", *lines)


def field_meanings(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the text about each field of an object: its docstring or the common one; empty for none."""
    meanings: dict[str, str] = {}
    for field, content in schema["properties"].items():
        default = COMMON.get(field, "")
        if not default and field.endswith(_AGE):
            default = f"Seconds since `{field.removesuffix(_AGE)}`."
        meanings[field] = content.get("description") or default
    return meanings


def _about_type(content: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the first sentence about the object that a field contains; empty for another field."""
    match = re.search(r"#/components/schemas/(\w+)", str(content))
    description = schemas[match[1]].get("description", "") if match else ""
    return " ".join(description.split()).partition(". ")[0].rstrip(".") + "." if description else ""


def _type(content: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the type of a field: the objects of the API link to their tables."""
    match content:
        case {"anyOf": parts}:
            return " or ".join(_type(part, schemas) for part in parts)
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return (
                f"[{name}](#{name.lower()})"
                if "properties" in schemas[name]
                else _type(schemas[name], schemas)
            )
        case {"enum": values}:
            return ", ".join(code(str(value)) for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_type(items, schemas)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"map to {_type(values, schemas)}"
    return str(content.get("type", "any"))


def fields_without_meaning(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that no text explains: neither their own nor that of their type."""
    for field, meaning in field_meanings(schema).items():
        if not meaning and "$ref" not in str(schema["properties"][field]):
            yield field
