"""The status page over HTTP: the view of a path, static files, the stream of changes, and the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from aiohttp import web

from nodeguard.aggregator.history.changes import read_history_view
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.history.node_findings import read_finding_periods
from nodeguard.aggregator.history.reader import HistoryError
from nodeguard.aggregator.http_listener import LimitedServer, listening
from nodeguard.aggregator.pages.change_feed import ChangeFeed, fingerprint
from nodeguard.aggregator.pages.changes import PERIOD, changes_section
from nodeguard.aggregator.pages.html import Html, element, join
from nodeguard.aggregator.pages.layout import CONTENT_SECURITY_POLICY, StaticFile, StaticFiles, document
from nodeguard.aggregator.pages.page_cache import PageCache
from nodeguard.aggregator.pages.page_query import QueryError, incident_query, node_query
from nodeguard.aggregator.pages.request_check import refusal_of
from nodeguard.aggregator.pages.timeline import TIMELINE, timeline_section
from nodeguard.aggregator.pages.views import (
    Fleet,
    PageContent,
    check_page,
    domain_page,
    domains_page,
    fleet_page,
    incident_page,
    incidents_page,
    node_page,
    nodes_page,
)
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.fleet_map import map_topologies
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.text.wording import api_time
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.instant import Instant, rfc3339

_Read = TypeVar("_Read")

logger = logging.getLogger(__name__)

# Streams of changes at a time; other pages are read again instead. Seconds between two comments that show
# that a stream is alive, before a browser connects again, and for a write to a stuck client.
MAX_STREAMS = 16
_HEARTBEAT = 15.0
_RETRY = 5.0
_STUCK = 10.0

_SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# Seconds for the history: without its part a page is still of use.
_HISTORY = 3.0
_NO_HISTORY = "no history is recorded: set --history on the aggregator"

# Bytes from which a response is compressed.
_COMPRESSED = 2048


class PagesContext(NamedTuple):
    """Inputs of the pages. service, now: return the state of the service and the time, at each call.
    remedies: what to do, by check. catalogue: what the pages explain. history: path of the history, empty for
    none.
    """

    planner: Planner
    service: Callable[[], ServiceState]
    now: Callable[[], Instant]
    remedies: Mapping[str, str]
    catalogue: Catalogue
    history: str = ""


class StatusPages:
    """Answers the requests."""

    def __init__(self, context: PagesContext, feed: ChangeFeed | None = None) -> None:
        self._context = context
        self._static = StaticFiles()
        self.cache = PageCache()
        self._making_fleet_document = asyncio.Lock()
        # One thread: a disk that hangs must not take those of other tasks.
        self._history_thread = ThreadPoolExecutor(1, "page-history")
        # An empty feed is false.
        self.feed = feed if feed is not None else ChangeFeed(self._fingerprint)

    def _fingerprint(self) -> int:
        return fingerprint(self._context.planner, self._context.service(), self._context.now())

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response to a request."""
        refusal = refusal_of(request)
        if refusal is not None:
            return _plain(*refusal)
        try:
            if request.path == "/events":
                return await self._events(request)
            if request.path in self._static.by_path:
                return _static_response(self._static.by_path[request.path])
            return await self._page(request)
        except Exception as error:
            logger.exception(
                "internal error in the status page, please report it", extra={"path": request.path[:253]}
            )
            return _plain(500, f"{type(error).__name__}: see the aggregator's log")

    async def _page(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/":
            status, body = 200, await self._fleet_document(request)
        else:
            status, body = await self._document(request)
        response = web.Response(body=body, status=status, headers=_SECURITY_HEADERS)
        response.content_type, response.charset = "text/html", "utf-8"
        response.headers["Cache-Control"] = "no-store"
        if len(body) >= _COMPRESSED:
            response.enable_compression()
        return response

    async def _fleet_document(self, request: web.BaseRequest) -> bytes:
        """Return the page of the fleet, which many people have open: it is made once for all of them."""
        # Only topologies of the fleet are keys: no request fills the cache with others.
        topology = request.query.get("by", "")
        key = topology if topology in map_topologies(self._context.planner) else ""
        async with self._making_fleet_document:
            body = self.cache.get(key)
            if body is None:
                _, body = await self._document(request)
                self.cache.store(key, body)
            return body

    async def _document(self, request: web.BaseRequest) -> tuple[int, bytes]:
        """Return the HTTP status of a path, and its page."""
        status = 200
        try:
            view = await self._view(request)
        except QueryError as error:
            status, view = 400, _invalid_view(str(error))
        if view is None:
            status, view = 404, _missing_view()
        now = api_time(rfc3339(self._context.now().wall))
        return status, document(view, request.path, now, self._static)

    async def _view(self, request: web.BaseRequest) -> PageContent | None:
        """Return the view of a path; None if there is none."""
        context = self._context
        fleet = Fleet(context.planner, context.service(), context.now(), context.remedies, context.catalogue)
        kind, _, rest = request.rel_url.raw_path.removeprefix("/").partition("/")
        name, query = unquote(rest), request.query
        content: PageContent | None = None
        match kind, name:
            case "", "":
                content = fleet_page(fleet, query.get("by", ""), await self._changes("", fleet.now.wall))
            case "incidents", "":
                content = incidents_page(fleet, *incident_query(query))
            case "incidents", _:
                content = incident_page(fleet, name)
            case "nodes", "":
                content = nodes_page(fleet, node_query(query))
            case "nodes", _ if uid := self._context.planner.state.uid(name):
                now = fleet.now.wall
                past = join((await self._changes(name, now), await self._timeline(uid, now)))
                content = node_page(fleet, name, past)
            case "checks", _:
                content = check_page(fleet, name)
            case "domains", "":
                content = domains_page(fleet)
            case "domains", _:
                content = domain_page(fleet, name)
        return content

    async def _changes(self, name: str, now: float) -> Html:
        """Return the changes of the past day. name: of a node, empty for the fleet."""
        if not self._context.history:
            return changes_section(None, _NO_HISTORY)
        file = history_path(self._context.history)
        read = partial(read_history_view, file, name, now - PERIOD, now, with_fleet=True)
        try:
            return changes_section(await self._read_history(read))
        except HistoryError as error:
            return changes_section(None, str(error))

    async def _timeline(self, uid: str, now: float) -> Html:
        if not self._context.history:
            return timeline_section((), now, _NO_HISTORY)
        file = history_path(self._context.history)
        try:
            periods = await self._read_history(partial(read_finding_periods, file, uid, now - TIMELINE))
        except HistoryError as error:
            return timeline_section((), now, str(error))
        return timeline_section(periods, now)

    async def _read_history(self, read: Callable[[], _Read]) -> _Read:
        """Return what a function reads from the history. Raises HistoryError."""
        try:
            async with asyncio.timeout(_HISTORY):
                return await asyncio.get_running_loop().run_in_executor(self._history_thread, read)
        except TimeoutError:
            remedy = "check its disk, or set --history-days lower"
            raise HistoryError(f"the history was not read within {_HISTORY:g} s: {remedy}") from None

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send an event for each change until the client or the server ends."""
        if len(self.feed) >= MAX_STREAMS or self.feed.has_ended():
            return _plain(503, "too many open pages: this one is read again every 30 s")
        headers = {**_SECURITY_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        if request.method == "HEAD":
            return response
        with suppress(ConnectionError), self.feed.subscribe() as changed:
            await response.prepare(request)
            await _write(response, f"retry: {_RETRY * 1000:.0f}\n: open\n\n")
            while not self.feed.has_ended():
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        await changed.wait()
                except TimeoutError:
                    await _write(response, ": alive\n\n")
                    continue
                changed.clear()
                # The browser reads the page at once, and must not get the one before the change.
                self.cache.clear()
                await _write(response, "event: change\ndata:\n\n")
        return response


@asynccontextmanager
async def serve_pages(address: tuple[str, int] | str, pages: StatusPages) -> AsyncIterator[None]:
    """Serve the pages until the context ends. address: host and port, or the path of a Unix socket. Raises
    OSError if it cannot listen.
    """
    # A closed page ends its stream at once: the number of streams is limited.
    server = LimitedServer(pages, handler_cancellation=True)
    async with listening(web.ServerRunner(server, shutdown_timeout=1.0), address):
        try:
            yield
        finally:
            pages.feed.close()


async def _write(response: web.StreamResponse, text: str) -> None:
    """Write to a stream. Raises ConnectionError if the client does not read."""
    try:
        async with asyncio.timeout(_STUCK):
            await response.write(text.encode())
    except TimeoutError:
        raise ConnectionResetError("the client does not read") from None


def _invalid_view(error: str) -> PageContent:
    title = "Not a valid query"
    return PageContent(title, element("section", element("h1", title), element("p", f"{error}.")))


def _missing_view() -> PageContent:
    hint = element(
        "p",
        "The node, incident, check or domain may be gone. Names are those of ",
        element("code", "nodeguard get"),
        ".",
    )
    return PageContent("Not found", element("section", element("h1", "Not found"), hint))


def _plain(status: int, text: str) -> web.Response:
    response = web.Response(
        status=status, text=f"{text}\n", headers={**_SECURITY_HEADERS, "Cache-Control": "no-store"}
    )
    if status == 405:
        response.headers["Allow"] = "GET, HEAD"
    return response


def _static_response(file: StaticFile) -> web.Response:
    headers = {
        **_SECURITY_HEADERS,
        "Content-Type": file.content_type,
        "Cache-Control": "max-age=31536000, immutable",
    }
    return web.Response(body=file.body, headers=headers)
