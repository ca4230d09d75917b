"""HTML that is escaped by construction: every text is escaped unless `element` or `join` made it. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

from nodeguard.model.printable import printable

_VOID = frozenset({"input", "link", "meta"})


class Html(str):
    """A text that is HTML. Operations of str return plain text, which is escaped when it becomes a child."""

    __slots__ = ()


EMPTY = Html("")


def escape(text: str) -> Html:
    """Return a text as HTML, without control characters; HTML as it is."""
    return text if isinstance(text, Html) else Html(html.escape(printable(text)))


def join(parts: Iterable[str]) -> Html:
    """Return parts as one HTML text: plain texts are escaped."""
    return Html("".join(map(escape, parts)))


def element(tag: str, *children: str, **attributes: str | bool) -> Html:
    """Return an element. Of the names of attributes a `_` at the end is removed, others become `-`; False is
    left out.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is not False:
            shown = name.rstrip("_").replace("_", "-")
            words.append(shown if value is True else f'{shown}="{escape(str(value))}"')
    inner = "".join(map(escape, children))
    return Html(f"<{' '.join(words)}>" if tag in _VOID else f"<{' '.join(words)}>{inner}</{tag}>")


def link(path: str, *children: str, **attributes: str | bool) -> Html:
    """Return a link to a path of this site."""
    return element("a", *children, href=path, **attributes)


def command_element(command: str, **attributes: str) -> Html:
    """Return a command. It breaks between its words only: a browser also breaks a text after a hyphen."""
    words = (element("span", word) if "-" in word else escape(word) for word in command.split(" "))
    return element("code", Html(" ".join(words)), **attributes)


def node_path(name: str) -> str:
    """Return the path of a node's page."""
    return f"/nodes/{quote(name, safe='')}"


def nodes_path(work: str) -> str:
    """Return the path of the list of nodes in a state of work."""
    return query_path("/nodes", {"work": work})


def check_path(check: str) -> str:
    """Return the path of the page that explains a check, or a domain's fault class."""
    return f"/checks/{quote(check, safe='')}"


def incidents_path(check: str = "", state: str = "", page: int = 1) -> str:
    """Return the path of a page of incidents: of a check, or of a domain's fault class, and in a state. Empty
    for all.
    """
    return query_path("/incidents", {"check": check, "state": state, "page": str(page) if page > 1 else ""})


def query_path(path: str, query: Mapping[str, str]) -> str:
    """Return a path with a query: its parameters that are not empty."""
    words = urlencode({name: value for name, value in query.items() if value}, quote_via=quote, safe="")
    return f"{path}?{words}" if words else path


def domain_path(domain: str) -> str:
    """Return the path of a domain's page. domain: its path, `rack/r7`."""
    return f"/domains/{quote(domain)}"


def incident_path(name: str) -> str:
    """Return the path of an incident's page."""
    return f"/incidents/{quote(name, safe='')}"
