import re
from pathlib import Path

import pytest

from tests.paths import ROOT

PAGES = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    if "decisions" not in path.parts
)
REFERENCES = ("reference", "bare", "node exporter", "quarter of a core")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_share_of_a_core_names_its_reference(page: Path) -> None:
    section = ""
    for paragraph in page.read_text().split("\n\n"):
        section = paragraph if paragraph.startswith("#") else section + paragraph
        if "% of a core" in paragraph or re.search(r"\d CPU s\b", paragraph):
            assert any(word in section for word in REFERENCES), paragraph


@pytest.mark.parametrize(
    "path",
    [
        ("index", "concepts/overview", "quickstart/kubernetes", "tasks/enforce-the-first-check"),
        ("concepts/overview", "quickstart/slurm", "tasks/enforce-the-first-check"),
        ("quickstart/one-machine", "tasks/my-training-failed", "runbooks/node-quarantined"),
        ("quickstart/kubernetes", "tasks/one-fault", "tasks/enforce-the-first-check"),
        (
            *("quickstart/kubernetes", "tasks/enforce-the-first-check"),
            *("runbooks/node-quarantined", "tasks/return-a-node"),
        ),
    ],
)
def test_3000_words_carry_a_newcomer_to_the_end_of_the_first_fault(path: tuple[str, ...]) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / f"{page}.md" for page in path)]
    assert sum(len(page.read_text().split()) for page in pages) <= 3000


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/concepts/overview.md"])
def test_a_page_has_the_number_of_platforms(page: str) -> None:
    platforms = list((ROOT / "checks" / "platforms").glob("*.yaml"))
    assert re.findall(r"(\d+) platforms", (ROOT / page).read_text()) == [str(len(platforms))]
