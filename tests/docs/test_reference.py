"""The reference pages are those that `make docs` writes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from nodeguard.aggregator.api.handlers import application
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
