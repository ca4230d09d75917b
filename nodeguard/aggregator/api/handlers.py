"""The pages of the API: what each path answers. Every error is JSON, a sentence with its remedy."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from nodeguard.aggregator.api.requests import (
    ActionResult,
    ErrorResponse,
    IncidentAction,
    PauseRequest,
    ResumeRequest,
    UnmarkRequest,
)
from nodeguard.aggregator.backends.operator_actions import OperatorActionError, OperatorActions
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.domain import describe_domain, domains_named, list_domains
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.node import describe_node, list_nodes
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status, list_budgets
from nodeguard.local.unix_socket import bind_socket, is_authorized_peer
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant

_LOG = logging.getLogger("nodeguard.aggregator")

# Bytes of a request's body, and characters of a name in its path.
_LIMIT = 16 * 1024
_NAME = 253

# Domains that are named of those that a name may mean.
_SHOWN = 4

_Wanted = TypeVar("_Wanted", bound=Struct)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiContext(Struct, frozen=True):
    """What the API tells of, and who carries decisions out. service, now: at the moment of the call."""

    planner: Planner
    service: Callable[[], ServiceState]
    now: Callable[[], Instant]
    actions: OperatorActions


class _RefusedError(Exception):
    """What was asked is answered with a status and an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def application(asked: ApiContext) -> web.Application:
    """The API over what is asked."""
    pages = _Pages(asked)
    app = web.Application(middlewares=[_careful], client_max_size=_LIMIT)
    app.router.add_get("/v1/status", pages.status)
    app.router.add_get("/v1/budgets", pages.budgets)
    app.router.add_get("/v1/nodes", pages.nodes)
    app.router.add_get("/v1/nodes/{name}", pages.node)
    app.router.add_get("/v1/domains", pages.domains)
    app.router.add_get("/v1/domains/{name:.+}", pages.domain)
    app.router.add_get("/v1/incidents", pages.incidents)
    app.router.add_get("/v1/incidents/{name}", pages.incident)
    app.router.add_post("/v1/incidents/{name}", pages.decide)
    app.router.add_post("/v1/pause", pages.pause)
    app.router.add_post("/v1/resume", pages.resume)
    app.router.add_post("/v1/unmark", pages.unmark)
    return app


class _Pages:
    """Answers, one method for each path."""

    def __init__(self, asked: ApiContext) -> None:
        self._asked = asked

    async def status(self, _: web.Request) -> web.Response:
        return _answer(fleet_status(self._asked.planner, self._asked.service(), self._asked.now()))

    async def budgets(self, _: web.Request) -> web.Response:
        return _answer(list_budgets(self._asked.planner, self._asked.now()))

    async def nodes(self, _: web.Request) -> web.Response:
        return _answer(list_nodes(self._asked.planner, self._asked.now()))

    async def node(self, request: web.Request) -> web.Response:
        name = _name(request)
        page = describe_node(self._asked.planner, self._asked.service(), name, self._asked.now())
        if page is None:
            raise _RefusedError(404, f"there is no node '{name}': GET /v1/nodes lists them")
        return _answer(page)

    async def incidents(self, request: web.Request) -> web.Response:
        states = _states(request.query.getall("state", []))
        of = request.query.get("node", "")
        if of and not self._asked.planner.state.uid(of):
            raise _RefusedError(404, f"there is no node '{of}': GET /v1/nodes lists them")
        return _answer(
            list_incidents(self._asked.planner, self._asked.service(), self._asked.now(), states, of)
        )

    async def incident(self, request: web.Request) -> web.Response:
        name = _name(request)
        page = describe_incident(self._asked.planner, self._asked.service(), name, self._asked.now())
        if page is None:
            raise _no_incident(name)
        return _answer(page)

    async def domains(self, request: web.Request) -> web.Response:
        every = request.query.get("all", "") not in {"", "0", "no", "false"}
        return _answer(list_domains(self._asked.planner, self._asked.now(), include_healthy=every))

    async def domain(self, request: web.Request) -> web.Response:
        name = _name(request)
        found = domains_named(self._asked.planner, name)
        if not found:
            raise _RefusedError(404, f"there is no domain '{name}': GET /v1/domains?all=yes lists them")
        if len(found) > 1:
            several = ", ".join(found[:_SHOWN]) + (" and others" if len(found) > _SHOWN else "")
            raise _RefusedError(409, f"'{name}' is several domains: write one of {several}")
        return _answer(describe_domain(self._asked.planner, found[0], self._asked.now()))

    async def decide(self, request: web.Request) -> web.Response:
        name, wanted = _name(request), await _body(request, IncidentAction)
        self._open(name)
        to = self._asked.actions
        carry = to.clear if wanted.action == "clear" else to.acknowledge
        return _answer(ActionResult(await carry(name, wanted.by)))

    def _open(self, name: str) -> None:
        """Raise _RefusedError for an incident of which nothing can be decided."""
        planner = self._asked.planner
        known = planner.incident(name)
        if known is None or not known.is_open:
            if planner.pending_incident(name) is not None:
                problem = f"{name} is in its grace period: there is nothing to decide before its end"
                raise _RefusedError(409, problem)
            if known is None:
                raise _no_incident(name)
            raise _RefusedError(409, f"{name} is over already: there is nothing to decide")

    async def pause(self, request: web.Request) -> web.Response:
        wanted = await _body(request, PauseRequest)
        return _answer(ActionResult(await self._asked.actions.pause(wanted.reason, wanted.by)))

    async def resume(self, request: web.Request) -> web.Response:
        wanted = await _body(request, ResumeRequest)
        return _answer(ActionResult(await self._asked.actions.resume(wanted.by)))

    async def unmark(self, request: web.Request) -> web.Response:
        wanted = await _body(request, UnmarkRequest)
        return _answer(ActionResult(await self._asked.actions.unmark(wanted.by)))


@web.middleware
async def _careful(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answers only those who may ask, and every error in the same form."""
    transport = request.transport
    peer = transport.get_extra_info("socket") if transport is not None else None
    if peer is None or not is_authorized_peer(peer):
        return _wrong(403, "only root, or the user that the aggregator runs as, may ask: ask as one of them")
    try:
        return await handler(request)
    except _RefusedError as refused:
        return _wrong(refused.status, str(refused))
    except OperatorActionError as error:
        return _wrong(409, str(error))
    except web.HTTPRequestEntityTooLarge:
        return _wrong(413, f"the request is too large: {_LIMIT} bytes at most")
    except web.HTTPMethodNotAllowed as error:
        allowed = " or ".join(sorted(error.allowed_methods))
        return _wrong(405, f"{request.method} is not for {request.path[:_NAME]}: use {allowed}")
    except web.HTTPException as error:
        remedy = "there is /v1/status, /v1/nodes, /v1/domains and /v1/incidents"
        return _wrong(error.status, f"{request.path[:_NAME]}: {error.reason}: {remedy}")
    except Exception as error:  # noqa: BLE001 - one question must not end what others ask
        _LOG.exception("%s %s failed", request.method, request.path[:_NAME])
        return _wrong(500, f"{type(error).__name__}: {error}: see the aggregator's log")


async def _body(request: web.Request, form: type[_Wanted]) -> _Wanted:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _RefusedError(400, f"{error}: both sides must be of one version") from None


def _name(request: web.Request) -> str:
    name = request.match_info["name"]
    if len(name) > _NAME:
        raise _RefusedError(404, f"a name has {_NAME} characters at most: this is none")
    return name


def _states(words: list[str]) -> frozenset[IncidentState]:
    """States by their names, in whatever case; `all` for all of them."""
    if any(word.lower() == "all" for word in words):
        return frozenset(IncidentState)
    known = {state.slug: state for state in IncidentState}
    for word in words:
        if word.lower() not in known:
            raise _RefusedError(400, f"'{word[:_NAME]}' is no state: there is all, {', '.join(known)}")
    return frozenset(known[word.lower()] for word in words)


def _no_incident(name: str) -> _RefusedError:
    return _RefusedError(404, f"there is no incident '{name}': GET /v1/incidents?state=all lists them")


def _answer(told: Struct, status_code: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(told), status=status_code, content_type="application/json", charset="utf-8"
    )


def _wrong(status_code: int, error: str) -> web.Response:
    return _answer(ErrorResponse(error), status_code)


# Seconds for answers under way when the server ends, and for which a connection may say nothing.
_GOODBYE = 2.0
_PATIENCE = 15.0


@asynccontextmanager
async def serve_api(path: str, asked: ApiContext) -> AsyncIterator[None]:
    """Answer at a path until the context ends; the socket is then taken away. Raises OSError where it cannot
    listen, where another aggregator does, or where something is there that is no socket.
    """
    own = bind_socket(path, "aggregator")
    made = os.lstat(path)
    runner = web.AppRunner(
        application(asked), access_log=None, keepalive_timeout=_PATIENCE, shutdown_timeout=_GOODBYE
    )
    try:
        await runner.setup()
        await web.SockSite(runner, own).start()
        yield
    finally:
        await runner.cleanup()
        own.close()
        with suppress(OSError):
            # Another that has come since has a socket of its own there.
            if os.path.samestat(made, os.lstat(path)):
                os.unlink(path)
