"""The search of the documentation's site."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from scripts.site_search import on_post_build


def test_decisions_and_sections_of_checks_are_not_found(tmp_path: Path) -> None:
    locations = (
        "tasks/upgrade/#roll-back",
        "decisions/0001-libraries/",
        "reference/checks/",
        "reference/checks/#gpu-presence",
        "reference/checks/gpu-lost/",
        "reference/checks/gpu-lost/#what-to-do",
    )
    (tmp_path / "search").mkdir()
    path = tmp_path / "search" / "search_index.json"
    docs = [{"location": location, "title": "", "text": "é"} for location in locations]
    path.write_text(json.dumps({"config": {"lang": ["en"]}, "docs": docs}))
    on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
    index = json.loads(path.read_text("utf-8"))
    assert [entry["location"] for entry in index["docs"]] == [
        "tasks/upgrade/#roll-back",
        "reference/checks/",
        "reference/checks/gpu-lost/",
    ]
    assert index["config"] == {"lang": ["en"]}
