"""The reference pages are those that `make docs` writes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from nodeguard.aggregator.api.server import application
from nodeguard.catalog.catalogue import load_builtin
from nodeguard.pipeline.signal_registry import all_signals
from scripts.reference.pages import PAGES
from scripts.reference.schemas import RESPONSES
from tests.paths import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == PAGES[name](), "run `make docs`"


def test_openapi_describes_every_route() -> None:
    context: Any = None  # no handler runs
    routes = {
        (route.method.lower(), re.sub(r":[^}]*", "", route.resource.canonical))
        for route in application(context).router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes == set(RESPONSES)
    assert set(yaml.safe_load(PAGES["docs/reference/openapi.yaml"]())["paths"]) == {
        path for _, path in routes
    }


def test_openapi_has_the_docstrings_of_fields() -> None:
    schemas = yaml.safe_load(PAGES["docs/reference/openapi.yaml"]())["components"]["schemas"]
    assert schemas["ActionView"]["properties"]["purpose"] == {
        "description": "What it does, after `to`.",
        "type": "string",
    }
    reference = schemas["FleetStatus"]["properties"]["other_full_budgets"]
    assert reference["description"].startswith("Sum of the budgets")
    assert reference["$ref"] == "#/components/schemas/ReasonCount"
    assert "description" not in schemas["ActionView"]["properties"]["age"]


def test_each_check_has_a_page_and_the_anchor_of_earlier_links() -> None:
    catalogue = load_builtin(all_signals)
    folder = ROOT / "docs" / "reference" / "checks"
    assert {path.stem for path in folder.iterdir()} == {check.id for check in catalogue.checks}, (
        "run `make docs`"
    )
    index = folder.with_suffix(".md").read_text("utf-8")
    assert re.findall(r'<a id="(.+?)"', index) == [
        check.id for check in sorted(catalogue.checks, key=lambda check: check.family)
    ]


def test_a_page_of_a_check_has_what_an_operator_looks_for() -> None:
    written = PAGES["docs/reference/checks/gpu-lost.md"]()
    for text in (
        "**GPU lost.**",
        "gpu.fell\\_off in this boot",
        "    systemctl reboot\n",
        '`nodeguard_finding{check="gpu-lost"}`',
        "`GPUFaultRebootNode`",
        "code 79",
    ):
        assert text in written
