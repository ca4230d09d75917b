"""Reference pages of schemas: policy file, checks, NodeIncident and the API of the aggregator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodeguard import __version__
from nodeguard.aggregator.api import requests
from nodeguard.aggregator.policy.schema import json_schema
from nodeguard.catalog.check_schema import CheckFileSchema
from nodeguard.cli.streams import to_json
from nodeguard.config.amounts import write_amounts
from nodeguard.config.field_descriptions import with_field_descriptions
from nodeguard.config.schema_text import with_clean_descriptions
from nodeguard.fleet_api.schema.action import ActionList
from nodeguard.fleet_api.schema.budget import BudgetList
from nodeguard.fleet_api.schema.component import ComponentList
from nodeguard.fleet_api.schema.domain import DomainList, DomainView
from nodeguard.fleet_api.schema.drain import DrainPreview
from nodeguard.fleet_api.schema.history import HistoryView
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeView
from nodeguard.fleet_api.schema.status import FleetStatus
from scripts.reference.markdown import code, page, table

ROOT = Path(__file__).parents[2]

# Response and request of each path of the API; a test compares the paths with the routes.
RESPONSES: dict[tuple[str, str], type] = {
    ("get", "/v1/status"): FleetStatus,
    ("get", "/v1/budgets"): BudgetList,
    ("get", "/v1/nodes"): NodeList,
    ("get", "/v1/nodes/{name}"): NodeView,
    ("get", "/v1/nodes/{name}/drain"): DrainPreview,
    ("get", "/v1/gpus"): ComponentList,
    ("get", "/v1/ports"): ComponentList,
    ("get", "/v1/domains"): DomainList,
    ("get", "/v1/domains/{name}"): DomainView,
    ("get", "/v1/incidents"): IncidentList,
    ("get", "/v1/incidents/{name}"): IncidentView,
    ("get", "/v1/actions"): ActionList,
    ("get", "/v1/history"): HistoryView,
    ("post", "/v1/incidents/{name}"): requests.ActionResult,
    ("post", "/v1/nodes/{name}/drain"): requests.DrainResult,
    ("post", "/v1/nodes/{name}/gpus"): requests.ActionResult,
    ("post", "/v1/pause"): requests.ActionResult,
    ("post", "/v1/resume"): requests.ActionResult,
    ("post", "/v1/unmark"): requests.ActionResult,
}
BODIES: dict[str, type] = {
    "/v1/incidents/{name}": requests.IncidentAction,
    "/v1/nodes/{name}/drain": requests.DrainRequest,
    "/v1/nodes/{name}/gpus": requests.GpusRequest,
    "/v1/pause": requests.PauseRequest,
    "/v1/resume": requests.ResumeRequest,
    "/v1/unmark": requests.UnmarkRequest,
}
_NODE = "Name of a node. Default: all nodes."
_SELECTOR = "Label selector with the grammar of kubectl, such as `pool=a,!spare`."
QUERIES: dict[str, dict[str, str]] = {
    "/v1/nodes": {"selector": _SELECTOR},
    "/v1/gpus": {"node": _NODE, "selector": _SELECTOR},
    "/v1/ports": {"node": _NODE, "selector": _SELECTOR},
    "/v1/domains": {"all": "`yes`: healthy domains as well."},
    "/v1/incidents": {
        "state": "A state in lower case, such as `withheld`, or `all`; repeatable. Default: unresolved ones.",
        "node": "Name of a Node.",
    },
    "/v1/actions": {"node": _NODE},
    "/v1/history": {
        "since": "How far back, in seconds. Default: a day.",
        "name": "Name of a node or an incident, or path of a domain or its end. Default: the fleet.",
    },
}


def policy() -> str:
    """All keys of the policy file with type, default and meaning."""
    definitions = json_schema()["$defs"]
    guide = "Guide: [policy](../concepts/policy.md). For editors: [policy.schema.json](policy.schema.json)."
    lines = [guide, ""]
    for path, name in _objects("PolicySpec", definitions):
        properties = definitions[name]["properties"]
        rows = (
            (code(key), _type(content, definitions), _default(content), content["description"])
            for key, content in properties.items()
        )
        title = code(path) or "The file"
        about = definitions[name]["description"]
        lines += [f"## {title}", "", about, "", *table(("key", "type", "default", "meaning"), rows)]
    return page("Policy keys", *lines)


def _objects(name: str, definitions: dict[str, Any], key: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and name of each object of a schema, an object before those in it."""
    yield key, name
    for field, content in definitions[name]["properties"].items():
        for reference in re.findall(r"#/\$defs/(\w+)", json.dumps(content)):
            if "properties" in definitions[reference]:
                repeated = "[]" if '"items"' in json.dumps(content) else ""
                yield from _objects(reference, definitions, f"{key}.{field}{repeated}".lstrip("."))


def _type(content: dict[str, Any], definitions: dict[str, Any]) -> str:
    match content:
        case {"anyOf": parts}:
            return " or ".join(_type(part, definitions) for part in parts)
        case {"$ref": reference}:
            return _type(definitions[reference.rpartition("/")[2]], definitions)
        case {"enum": values}:
            return ", ".join(code(str(value)) for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_type(items, definitions)}"
        case {"examples": [example, *_]}:
            return f"{content['type']}, such as `{example}`"
    return str(content.get("type", "any"))


def _default(content: dict[str, Any]) -> str:
    default = content.get("default")
    return "" if default is None or isinstance(default, dict) or default == [] else code(json.dumps(default))


def incidents() -> str:
    """All fields of the custom resource NodeIncident."""
    return _custom_resource("crd-nodeincidents.yaml")


def actions() -> str:
    """All fields of the custom resource NodeAction."""
    return _custom_resource("crd-nodeactions.yaml")


def _custom_resource(file: str) -> str:
    resource = yaml.safe_load((ROOT / "daemonset" / file).read_text("utf-8"))["spec"]
    [version] = resource["versions"]
    names, scope = resource["names"], "cluster-scoped" if resource["scope"] == "Cluster" else "namespaced"
    rows = _fields(version["schema"]["openAPIV3Schema"]["properties"])
    about = f"`{names['plural']}.{resource['group']}/{version['name']}`, {scope}."
    return page(names["kind"], about, "", *table(("field", "type", "meaning"), rows))


def _fields(properties: dict[str, Any], parent: str = "") -> Iterator[tuple[str, str, str]]:
    for name, content in properties.items():
        items = content.get("items", {})
        values = ", ".join(code(value) for value in content.get("enum", ()))
        about = content.get("description", "")
        yield code(parent + name), content["type"], f"{about} {values}".strip()
        yield from _fields(content.get("properties", {}), f"{parent}{name}.")
        yield from _fields(items.get("properties", {}), f"{parent}{name}[].")


def open_api() -> str:
    """The API of the aggregator as an OpenAPI document, in YAML."""
    text = yaml.dump(open_api_document(), sort_keys=False, width=110, Dumper=_Dumper)
    return f"# Written by `make docs`; do not edit.\n{text}"


def open_api_document() -> dict[str, Any]:
    """The API of the aggregator as an OpenAPI document."""
    types = [*RESPONSES.values(), *BODIES.values(), requests.ErrorResponse]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    components = with_clean_descriptions(with_field_descriptions(components))
    references = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for (method, path), response in RESPONSES.items():
        operation: dict[str, Any] = {
            "summary": _summary(BODIES.get(path, response) if method == "post" else response),
            "parameters": list(_parameters(path)),
            "responses": {
                "200": _content(references[response], "The answer."),
                "default": _content(references[requests.ErrorResponse], "An error, with its remedy."),
            },
        }
        if method == "post":
            operation["requestBody"] = _content(references[BODIES[path]], "")
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "nodeguard aggregator", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


class _Dumper(yaml.SafeDumper):
    """Writes equal objects twice instead of once with an alias."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _summary(form: type) -> str:
    return " ".join((form.__doc__ or "").split()).partition(". ")[0].rstrip(".") + "."


def _parameters(path: str) -> Iterator[dict[str, Any]]:
    if "{name}" in path:
        yield {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 253}}
    for name, about in QUERIES.get(path, {}).items():
        yield {"name": name, "in": "query", "description": about, "schema": {"type": "string"}}


def _content(schema: dict[str, Any], about: str) -> dict[str, Any]:
    described = {"description": about} if about else {}
    return {**described, "content": {"application/json": {"schema": schema}}}


def policy_schema() -> str:
    """The JSON Schema of the policy file, as `nodeguard policy schema` prints it."""
    return to_json(json_schema()) + "\n"


def check_schema() -> str:
    """The JSON Schema of a file of checks."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    schema = write_amounts(msgspec.json.schema(CheckFileSchema))
    schema = with_clean_descriptions({**schema, "$defs": with_field_descriptions(schema["$defs"])})
    return to_json({"$schema": draft, "title": "Checks of nodeguard", **schema}) + "\n"
