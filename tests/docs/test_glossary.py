"""The glossary names types that exist, each term once."""

from __future__ import annotations

import re
from importlib import import_module

from tests.paths import ROOT

ROW = re.compile(r"^\| ([^|]+) \| `([\w.]+)` \| [^|]+ \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "glossary.md").read_text("utf-8"))


def exists(path: str) -> bool:
    """Return whether a dotted path names a module, or a member of one."""
    try:
        import_module(path)
    except ModuleNotFoundError:
        module, _, member = path.rpartition(".")
        return hasattr(import_module(module), member)
    return True


def test_every_type_of_the_glossary_exists() -> None:
    assert len(ROWS) > 30
    assert [path for _, path in ROWS if not exists(path)] == []


def test_every_term_is_explained_once() -> None:
    terms = [term for term, _ in ROWS]
    assert len(set(terms)) == len(terms)
