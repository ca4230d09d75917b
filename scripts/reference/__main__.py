"""Writes the reference pages: `python -m scripts.reference`."""

from scripts.reference.listings import ROOT
from scripts.reference.pages import PAGES

CHECKS = ROOT / "docs" / "reference" / "checks"
CHECKS.mkdir(exist_ok=True)
for path in CHECKS.iterdir():
    if str(path.relative_to(ROOT)) not in PAGES:
        path.unlink()
for name, write in PAGES.items():
    (ROOT / name).write_text(write(), "utf-8")
