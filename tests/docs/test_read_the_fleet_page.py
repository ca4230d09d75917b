"""The page of the HTTP API explains every field; the page of the fleet every condition that a mark may wait for."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from nodeguard.fleet.decide.release import WaitKind
from nodeguard.fleet_api.domain import describe_domain
from nodeguard.fleet_api.text.domain import domain_view
from scripts.reference.http_fields import fields_without_meaning
from scripts.reference.schemas import open_api_document
from tests.cli.fleet_output import LEADER, look
from tests.fleet.leaves import FIRST
from tests.fleet_api.text.test_domain import FABRIC
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "tasks" / "read-the-fleet.md").read_text("utf-8")
SCHEMAS: dict[str, dict[str, Any]] = open_api_document()["components"]["schemas"]


@pytest.mark.parametrize("name", [name for name, schema in SCHEMAS.items() if "properties" in schema])
def test_every_field_is_explained(name: str) -> None:
    assert list(fields_without_meaning(SCHEMAS[name])) == []


def test_every_condition_of_a_release_is_explained() -> None:
    assert [term for term in get_args(WaitKind) if f"(`{term}`)" not in PAGE] == []


def test_the_documented_domain_is_the_real_output() -> None:
    assert look(domain_view(describe_domain(FABRIC.planner, LEADER, FIRST, FABRIC.now)), 100) in PAGE
