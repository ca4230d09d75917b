"""The text of pages without HTML, and their links."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser

from nodeguard.aggregator.pages.views import Fleet, PageContent
from tests.aggregator.pages import scenes
from tests.aggregator.pages.scenes import CATALOGUE, REMEDIES, service_state
from tests.fleet.scene import Fleet as Nodes


def inputs(fleet: Nodes) -> Fleet:
    return Fleet(fleet.planner, service_state(fleet), fleet.now, REMEDIES, CATALOGUE)


@cache
def faulty() -> Fleet:
    return inputs(scenes.faulty_fleet())


class Text(HTMLParser):
    """The text of a page in order, and its links and elements."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(view: PageContent | None) -> Text:
    assert view is not None
    text = Text()
    text.feed(view.content)
    return text


def text(view: PageContent | None) -> str:
    return re.sub(r"\s+", " ", " ".join(parsed(view).words))


def hrefs(view: PageContent | None) -> list[str]:
    return [attributes["href"] or "" for tag, attributes in parsed(view).elements if tag == "a"]


def links(view: PageContent | None) -> set[str]:
    return set(hrefs(view))
