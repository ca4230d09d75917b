"""Each metric that a page of the documentation names is served."""

from __future__ import annotations

import re

from tests.alerts.pages import agent_page, aggregator_page, check_page
from tests.alerts.rules import labels_by_metric
from tests.docs.pages import PAGES, text


async def test_each_metric_that_a_page_names_is_served() -> None:
    pages = (agent_page(), check_page(), await aggregator_page())
    served = {metric for page in pages for metric in labels_by_metric(page)}
    named = {
        (page, metric)
        for page in PAGES
        for metric in re.findall(r"(?<![\w./-])nodeguard_[a-z_]+", text(page))
    }
    assert len(named) >= 8
    assert {(page, metric) for page, metric in named if metric not in served} == set()
