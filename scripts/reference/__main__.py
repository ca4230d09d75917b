"""Writes the reference pages: `python -m scripts.reference`."""

from scripts.reference.listings import ROOT
from scripts.reference.pages import PAGES

for name, write in PAGES.items():
    (ROOT / name).write_text(write(), "utf-8")
