"""The CustomResourceDefinition of NodeIncidents against the structs that write and read them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nodeguard.kube.incident_schema import (
    FieldSchema,
    missing_from,
    own_action_fields,
    own_fields,
    schema_fields,
    unknown_to_this_version,
)
from nodeguard.model.incident import IncidentState
from tests.controlplane.definitions import ACTIONS_CRD, CRD


def served_fields(definition: Path = CRD) -> dict[str, FieldSchema]:
    [version] = yaml.safe_load(definition.read_text())["spec"]["versions"]
    return schema_fields(version["schema"]["openAPIV3Schema"])


def test_the_definition_and_the_structs_have_the_same_fields() -> None:
    served, own = served_fields(), own_fields()
    assert served.keys() - own.keys() == set(), "no struct has these fields of the definition"
    assert own.keys() - served.keys() == set(), "the definition lacks these fields"
    assert "status.symptoms[].evidence[]" in own


@pytest.mark.parametrize("path", sorted(own_fields()))
def test_the_definition_and_the_structs_have_the_same_types_values_and_limits(path: str) -> None:
    assert served_fields().get(path) == own_fields()[path]


def test_the_definition_of_actions_has_the_fields_of_the_structs() -> None:
    assert served_fields(ACTIONS_CRD) == own_action_fields()


def test_the_state_of_an_object_is_any_that_is_recorded_in_a_cluster() -> None:
    unwritten = {IncidentState.PENDING, IncidentState.ADVISED}
    assert own_fields()["status.state"].values == set(IncidentState) - unwritten


@pytest.mark.parametrize(
    ("path", "served", "difference"),
    [
        ("status.jobsOmitted", None, "is missing"),
        ("status.jobsOmitted", FieldSchema("string"), "is of type string instead of integer"),
        ("status.health", FieldSchema("string", frozenset({"ok", "fatal"})), "refuses suspect, warning"),
        ("status.node", FieldSchema("string", frozenset({"a"})), "refuses most values"),
        ("status.message", FieldSchema("string", limits={"maxLength": 9}), "has maxLength 9 instead of 1024"),
        ("status.occurrences", FieldSchema("integer", limits={"minimum": 1}), "has minimum 1 instead of 0"),
        ("status.node", FieldSchema("string", formats={"format": "ip"}), "has format ip instead of none"),
        ("status.message", FieldSchema("string"), ""),
        ("status.message", FieldSchema("string", limits={"maxLength": 4096}), ""),
    ],
)
def test_only_what_loses_data_is_a_difference(path: str, served: FieldSchema | None, difference: str) -> None:
    fields = {**own_fields(), **({path: served} if served is not None else {})}
    if served is None:
        del fields[path]
    assert list(missing_from(fields, own_fields())) == ([f"{path} {difference}"] if difference else [])
    assert unknown_to_this_version(fields, own_fields()) == ()


def test_a_missing_object_is_named_without_its_fields() -> None:
    fields = {
        path: field for path, field in own_fields().items() if path.partition("[")[0] != "status.symptoms"
    }
    assert list(missing_from(fields, own_fields())) == ["status.symptoms is missing"]
