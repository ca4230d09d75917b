"""The pictures in the documentation: each is shown, and those of terminals are what the commands print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from scripts.pictures import IMAGES, PICTURES, ROOT, Picture, fleet_setting, picture_svg, terminal_output
from scripts.terminal_svg import UnknownSequenceError, terminal_svg

_MOST_BYTES = 30_000
_PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
_REFERENCE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def fleet() -> Iterator[tuple[str, ...]]:
    with fleet_setting() as options:
        yield options


def test_each_picture_is_on_a_page_with_a_text_alternative() -> None:
    shown = {
        (page.parent / target).resolve(): text
        for page in _PAGES
        for text, target in _REFERENCE.findall(page.read_text())
    }
    assert set(shown) == set(IMAGES.iterdir())
    assert [path.name for path, text in shown.items() if len(text) < 10] == []
    drawn = {picture.path for picture in PICTURES}
    assert drawn == {path for path in shown if path.suffix == ".svg"}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_and_loads_nothing(picture: Picture) -> None:
    content = picture.path.read_text()
    assert len(content) < _MOST_BYTES
    root = ElementTree.fromstring(content)
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds <= {"svg", "title", "style", "rect", "text", "tspan"}
    assert "url(" not in content
    assert "@import" not in content


@pytest.mark.slow
@pytest.mark.parametrize(
    "picture", [picture for picture in PICTURES if picture.is_stable], ids=lambda picture: picture.name
)
def test_a_picture_has_the_output_of_today(picture: Picture, fleet: tuple[str, ...]) -> None:
    options = fleet if picture.setting == "fleet" else ()
    assert picture.path.read_text() == picture_svg(picture, options), "run `python -m scripts.pictures`"


@pytest.mark.parametrize("command", ["exec sleep 600", "exec sleep 600 >/dev/null"])
def test_a_command_that_does_not_end_is_killed(command: str) -> None:
    with pytest.raises(TimeoutError, match=r"sleep 600.*: not finished after 0\.2 s"):
        terminal_output(["sh", "-c", command], 0.2)


def texts(svg: str) -> list[tuple[str, str, str]]:
    """Return the text, the position and the class of each run."""
    root = ElementTree.fromstring(svg)
    return [
        (element.text or "", element.get("x", ""), element.get("class", ""))
        for element in root.iter("{http://www.w3.org/2000/svg}tspan")
    ]


def test_colors_and_columns_are_those_of_the_terminal() -> None:
    svg = terminal_svg("a <title>", "\x1b[1;31mFATAL\x1b[0m  <b>&amp;\r\n\r\n   \x1b[2mdim\x1b[0m\r\n", 80)
    expected = [("FATAL", "14.0", "b r"), ("<b>&amp;", "72.8", ""), ("dim", "39.2", "d")]
    assert texts(svg) == expected
    assert "<title>a &lt;title&gt;</title>" in svg


@pytest.mark.parametrize("output", ["\x1b[2J", "\x1b[35mmagenta", "\x07", "progress\roverwritten"])
def test_output_that_cannot_be_drawn_is_refused(output: str) -> None:
    with pytest.raises(UnknownSequenceError):
        terminal_svg("title", output, 80)
