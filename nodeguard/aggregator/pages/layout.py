"""The frame of every page: head, navigation, and the static files by the hash of their content."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from nodeguard import __version__
from nodeguard.aggregator.pages.html import Html, element, join, link
from nodeguard.aggregator.pages.views import PageContent

# Seconds after which a browser without scripts reloads a page.
_RELOAD = 30

_NAVIGATION = (("/", "Fleet"), ("/incidents", "Incidents"), ("/nodes", "Nodes"), ("/domains", "Domains"))

# Style, script and forms only from and to this server, nothing inline, no other content, no frame.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)


class StaticFile(NamedTuple):
    """A file that never changes under its path."""

    path: str
    content_type: str
    body: bytes


def _static(name: str, content_type: str) -> StaticFile:
    body = files("nodeguard.aggregator.pages").joinpath("static", name).read_bytes()
    stem, _, suffix = name.partition(".")
    digest = hashlib.blake2b(body, digest_size=8).hexdigest()
    return StaticFile(f"/static/{stem}-{digest}.{suffix}", content_type, body)


class StaticFiles:
    """The static files of the pages, read once."""

    def __init__(self) -> None:
        self.style = _static("page.css", "text/css; charset=utf-8")
        self.script = _static("page.js", "text/javascript; charset=utf-8")
        self.icon = _static("icon.svg", "image/svg+xml")
        self.by_path = {file.path: file for file in (self.style, self.script, self.icon)}


def document(view: PageContent, path: str, at: str, static: StaticFiles) -> bytes:
    """Return a page. path: of the page, for the navigation. at: the time of its content."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{view.title} - nodeguard"),
        element("link", rel="icon", type="image/svg+xml", href=static.icon.path),
        element("link", rel="stylesheet", href=static.style.path),
        element("script", src=static.script.path, defer=True),
        # With a script the server reports changes; without one the page is read again.
        element("noscript", element("meta", http_equiv="refresh", content=str(_RELOAD))),
    )
    navigation = join(
        link(target, name, aria_current="page" if target == path else False) for target, name in _NAVIGATION
    )
    body = element(
        "body",
        link("#main", "Skip to the content", class_="skip"),
        element(
            "header",
            element("span", "nodeguard", class_="brand"),
            element("nav", navigation, aria_label="Pages"),
            _search(view.search),
            element("p", f"as of {at}", id="live", role="status", data_at=at),
        ),
        element("main", view.content, id="main", tabindex="-1"),
        element("footer", f"nodeguard {__version__}. Read-only: operators act with the nodeguard command."),
    )
    return f"<!DOCTYPE html>\n{_html(head, body)}\n".encode()


def _search(text: str) -> Html:
    """Return the field that finds nodes by name."""
    field = element(
        "input",
        type="search",
        name="q",
        value=text,
        maxlength="253",
        placeholder="find a node",
        aria_label="Name",
    )
    return element("form", field, action="/nodes", method="get", role="search")


def _html(head: Html, body: Html) -> Html:
    return element("html", head, body, lang="en")
