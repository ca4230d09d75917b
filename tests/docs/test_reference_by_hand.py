"""The reference pages that people write name every field, key and path of the code."""

from __future__ import annotations

import json
import re
import subprocess

import msgspec
import pytest

from nodeguard.agent.options import OptionsFile, ReportingOptions
from nodeguard.catalog.check_schema import CheckFileSchema, CheckSchema, ConditionSchema, ReferenceSchema
from nodeguard.executors.kube.condition_reason import _ACTIONS, DOMAIN_DEGRADED, HEALTHY, ReasonClass
from nodeguard.fleet.incidents.events import _REASONS as EVENT_REASONS
from nodeguard.kube.node_patch import HEALTHY_CONDITION
from nodeguard.model import mark
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.incident import IncidentState
from tests.docs.pages import text
from tests.paths import ROOT

CHECK_FORMS = (CheckFileSchema, CheckSchema, ConditionSchema, FaultClass, ReferenceSchema)


def test_editors_show_a_description_of_every_key_of_the_check_language() -> None:
    forms = json.loads(text("docs/reference/check.schema.json"))["$defs"]
    keys = [
        (form.__name__, key)
        for form in CHECK_FORMS
        for key, content in forms[form.__name__]["properties"].items()
        if "description" not in content
    ]
    assert keys == []


@pytest.mark.parametrize("form", [OptionsFile, ReportingOptions], ids=lambda form: form.__name__)
def test_every_setting_of_the_agent_is_described(form: type[msgspec.Struct]) -> None:
    page = text("docs/reference/agent-settings.md")
    names = [field.name for field in msgspec.structs.fields(form)]
    assert [name for name in names if f"{name}:" not in page and f"`{name}`" not in page] == []


def test_the_kubernetes_api_has_every_taint_annotation_condition_and_event() -> None:
    annotations = {value for name, value in vars(mark).items() if name.endswith("_ANNOTATION")}
    taints = {kind.key for kind in mark.Mark}
    events = {reason for state, (reason, _) in EVENT_REASONS.items() if state != IncidentState.ADVISED}
    page = text("docs/reference/kubernetes-api.md")
    names = {*annotations, *taints, *events, HEALTHY_CONDITION}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_kubernetes_api_has_every_reason_of_the_condition() -> None:
    page = text("docs/reference/kubernetes-api.md")
    classes = {f"{fault}Fault" for fault in ReasonClass}
    names = {HEALTHY, DOMAIN_DEGRADED, "Recovering", *classes, *filter(None, _ACTIONS.values())}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_every_page_that_code_names_exists() -> None:
    found = subprocess.run(
        ["git", "grep", "-ohE", r"docs/[a-z0-9/-]+\.(md|json|yaml)", "--", ":!*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    pages = {re.sub(r".*?(docs/)", r"\1", path) for path in found}
    assert {page for page in pages if not (ROOT / page).is_file()} == set()
