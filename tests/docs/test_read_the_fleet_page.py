"""The page of the HTTP API names every field; the page of the fleet every condition that a mark may wait for."""

from __future__ import annotations

import inspect
from typing import get_args

import msgspec
import pytest

from nodeguard.fleet.decide.release import WaitKind
from nodeguard.fleet_api.domain import describe_domain
from nodeguard.fleet_api.schema import domain as domain_schema
from nodeguard.fleet_api.schema import incident as incident_schema
from nodeguard.fleet_api.schema import node as node_schema
from nodeguard.fleet_api.schema import status as status_schema
from nodeguard.fleet_api.text.domain import domain_view
from tests.cli.fleet_output import look
from tests.fleet.leaves import FIRST
from tests.fleet_api.text.test_domain import FABRIC
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "tasks" / "read-the-fleet.md").read_text("utf-8")
API_PAGE = (ROOT / "docs" / "reference" / "http-api.md").read_text("utf-8")
STRUCTS = {
    struct
    for module in (status_schema, node_schema, incident_schema, domain_schema)
    for _, struct in inspect.getmembers(module, inspect.isclass)
    if issubclass(struct, msgspec.Struct) and struct is not msgspec.Struct
}


@pytest.mark.parametrize("struct", sorted(STRUCTS, key=str))
def test_every_field_is_explained(struct: type[msgspec.Struct]) -> None:
    assert [name for name in struct.__struct_fields__ if f"`{name}`" not in API_PAGE] == []


def test_every_condition_of_a_release_is_explained() -> None:
    assert [term for term in get_args(WaitKind) if f"(`{term}`)" not in PAGE] == []


def test_the_documented_domain_is_the_real_output() -> None:
    assert look(domain_view(describe_domain(FABRIC.planner, FIRST, FABRIC.now)), 100) in PAGE
