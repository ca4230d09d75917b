"""The files that come from the Helm chart: manifests, alert rules, and the schema of its values."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from nodeguard.aggregator.notifications.settings import NotificationSpec
from nodeguard.aggregator.policy.schema import json_schema
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.config.schema_text import with_clean_descriptions
from tests.controlplane.programs import BuildError, program

DAEMONSET = Path(__file__).parents[2] / "daemonset"
CHART = DAEMONSET / "chart"

# Manifests by the template that they are rendered from. Other templates are for Helm only.
MANIFESTS = {
    "admission-policy.yaml": "admission-policy.yaml",
    "agent.yaml": "agent.yaml",
    "aggregator.yaml": "aggregator.yaml",
    "crd-nodeactions.yaml": "crd-nodeactions.yaml",
    "crd-nodeincidents.yaml": "crd-nodeincidents.yaml",
    "fill.yaml": "fill/fill.yaml",
    "flow-schema.yaml": "flow-schema.yaml",
    "namespace.yaml": "namespace.yaml",
    "network-policy.yaml": "network-policy.yaml",
    "policy.yaml": "policy.yaml",
    "rbac.yaml": "rbac.yaml",
    "roles.yaml": "roles.yaml",
}

# The values that differ from the defaults: manifests include the namespace, and the optional `fill`.
# Kustomize adds the registry.
_REGISTRY = "registry.invalid"
_VALUES = f"createNamespace=true,fill.enabled=true,image.registry={_REGISTRY}"

_HEADER = "# Rendered from daemonset/chart by `make manifests`: change the template, not this file.\n"
_SOURCE = re.compile(r"^# Source: nodeguard/templates/(\S+)\n", re.MULTILINE)

# Patterns of the policy's schema end before a line break, for Python. Helm's `$` is the end of the text.
_NO_LINE_BREAK = r"(?!\n)"

# Labels that are true only of what Helm installs.
_HELM_LABEL = re.compile(r"^ +(?:app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)

# A share in the schema of the policy, and in that of the values: Helm refuses what is more than all. The Job
# of the chart refuses 0%, which is valid for some shares.
_SHARE = r"^[0-9]{1,3}(\.[0-9]{1,4})?%$"
_SHARE_UP_TO_ALL = r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$"


def helm() -> str:
    """Return the path of Helm: that of the tests, else the installed one. Raises BuildError for none."""
    try:
        return program("helm")
    except BuildError:
        if installed := shutil.which("helm"):
            return installed
        raise


def rendered() -> dict[str, str]:
    """Return the text of each manifest by its name below daemonset/."""
    command = [helm(), "template", "nodeguard", str(CHART), "--namespace=nodeguard", f"--set={_VALUES}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents: dict[str, list[str]] = {}
    for template, document in _documents(_HELM_LABEL.sub("", output.replace(f"{_REGISTRY}/", ""))):
        documents.setdefault(template, []).append(document)
    return {
        manifest: _HEADER + "---\n".join(_in_order(template, documents[template]))
        for template, manifest in MANIFESTS.items()
    }


def copies() -> dict[str, str]:
    """Return the text of each file of alert rules by its name below daemonset/."""
    return {f"alerts/{file.name}": file.read_text("utf-8") for file in sorted((CHART / "alerts").iterdir())}


def check_names() -> str:
    """Return the text of the chart's list of checks: the ids of the catalogue."""
    catalogue, _ = load_catalogue()
    return "".join(f"{check}\n" for check in sorted(check.id for check in catalogue.checks))


def values_schema() -> str:
    """Return the schema of the chart's values, with the current definitions of the policy and of the
    notification file.
    """
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    _, notifications = msgspec.json.schema_components((NotificationSpec,), ref_template="#/$defs/{name}")
    schema["$defs"] = _for_helm(json_schema()["$defs"] | with_clean_descriptions(notifications))
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _documents(output: str) -> Iterator[tuple[str, str]]:
    """Yield the template and the text of each document of Helm's output."""
    for part in re.split(r"^---\n", output, flags=re.MULTILINE):
        source = _SOURCE.match(part)
        if source is not None:
            yield source[1], part[source.end() :].strip("\n") + "\n"


def _in_order(template: str, documents: list[str]) -> list[str]:
    """Return documents in the order of their template; Helm sorts them by kind."""
    text = (CHART / "templates" / template).read_text("utf-8")

    def position(document: str) -> int:
        header = re.search(r"^(kind: .*\n)metadata:\n  name: .*\n", document, re.MULTILINE)
        assert header is not None
        place = text.find(header[0])
        return place if place >= 0 else text.find(header[1])

    return sorted(documents, key=position)


def _for_helm(schema: Any) -> Any:
    """Return a schema with an error for a person where a text does not match its pattern.

    The error of a pattern is the pattern. The error of a constant is "value must be" with the constant.
    """
    match schema:
        case {"type": "string", "pattern": str(pattern), "examples": list(examples)}:
            pattern, text_format = pattern.removesuffix(_NO_LINE_BREAK), f"text like {' or '.join(examples)}"
            if pattern == _SHARE:
                pattern, text_format = _SHARE_UP_TO_ALL, f"{text_format}, at most 100%"
            other = {key: value for key, value in schema.items() if key not in {"type", "pattern"}}
            return {**other, "if": {"type": "string", "pattern": pattern}, "else": {"const": text_format}}
        case dict():
            return {key: _for_helm(value) for key, value in schema.items()}
        case list():
            return [_for_helm(item) for item in schema]
    return schema
