"""Pages that people write: short lines, except in tables and blocks, and blocks that MkDocs renders."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, text
from tests.paths import ROOT

_MOST = 120
_RECORDS = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/decisions/*.md"))]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["CHANGELOG.md", *PAGES, *_RECORDS])
def test_prose_has_short_lines(page: str) -> None:
    prose = _FENCED.sub("", text(page)).splitlines()
    assert [line for line in prose if len(line) > _MOST and not line.startswith(("|", "    "))] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_fenced_block_is_in_a_list(page: str) -> None:
    """MkDocs renders it as a line of the sentence before."""
    assert [line for line in text(page).splitlines() if re.match(r" +```", line)] == []


def test_the_changelog_has_no_line_twice() -> None:
    """A rebase over a shortened section brings its lines back beside the new ones."""
    lines = [line for line in text("CHANGELOG.md").splitlines() if line]
    assert sorted({line for line in lines if lines.count(line) > 1}) == []
