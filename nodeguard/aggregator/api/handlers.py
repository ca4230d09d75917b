"""The HTTP API at a local socket: its handlers. Every error is JSON, with a message that has the remedy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from nodeguard.aggregator.actions.drain_preview import preview_drain
from nodeguard.aggregator.actions.drain_requests import DrainRefusedError, request_drains
from nodeguard.aggregator.api.requests import (
    ActionResult,
    DrainRequest,
    DrainResult,
    ErrorResponse,
    GpusRequest,
    IncidentAction,
    PauseRequest,
    ResumeRequest,
    UnmarkRequest,
)
from nodeguard.aggregator.backends.operator_actions import (
    ANONYMOUS,
    OperatorActionError,
    OperatorActions,
    foreign_taints_note,
)
from nodeguard.aggregator.history.changes import read_history_view
from nodeguard.aggregator.history.reader import HistoryError
from nodeguard.aggregator.http_listener import listening
from nodeguard.fleet.act.detaches import requested_detach
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.action import list_actions
from nodeguard.fleet_api.component import ComponentKind, list_components
from nodeguard.fleet_api.domain import describe_domain, domains_named, list_domains
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.node import describe_node, list_nodes, placements
from nodeguard.fleet_api.service_state import STANDALONE, ServiceState
from nodeguard.fleet_api.status import fleet_status, list_budgets
from nodeguard.fleet_api.text.phrases import count_noun, first_names
from nodeguard.local.unix_socket import is_authorized_peer
from nodeguard.model.action_store import ActionStore, ActionStoreError
from nodeguard.model.check import Check
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.incident import FalseAlarm, IncidentState
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.label_selector import LabelSelector, SelectorError, parse_label_selector
from nodeguard.model.printable import printable_json

logger = logging.getLogger(__name__)

# Bytes of a request's body, and characters of a name in its path.
_LIMIT = 16 * 1024
_NAME = 253

# Seconds of history by default, and at most.
_DAY, _LONGEST_HISTORY = 86_400.0, 366 * 86_400.0

_Wanted = TypeVar("_Wanted", bound=Struct)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiContext(Struct, frozen=True):
    """Inputs of the handlers.

    service, now: return the state of the service and the time, at each call. checks: by id, for their
    commands. action_store: receives what agents are asked to do. history: path of the history file, empty for
    none.
    """

    planner: Planner
    service: Callable[[], ServiceState]
    now: Callable[[], Instant]
    actions: OperatorActions
    action_store: ActionStore
    checks: dict[str, Check] = {}
    history: str = ""
    drain_cluster: Callable[[], DrainCluster | None] = lambda: None
    """Returns the cluster of drains; None while this aggregator does not lead, and without a cluster."""


class _RefusedError(Exception):
    """A request is refused with an HTTP status and an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def application(context: ApiContext) -> web.Application:
    """Return the application with all routes."""
    handlers = _Handlers(context)
    app = web.Application(middlewares=[_authorize_and_report_errors], client_max_size=_LIMIT)
    app.router.add_get("/v1/status", handlers.status)
    app.router.add_get("/v1/budgets", handlers.budgets)
    app.router.add_get("/v1/nodes", handlers.nodes)
    app.router.add_get("/v1/nodes/{name}", handlers.node)
    app.router.add_get("/v1/nodes/{name}/drain", handlers.preview_drain)
    app.router.add_post("/v1/nodes/{name}/drain", handlers.request_drain)
    app.router.add_post("/v1/nodes/{name}/gpus", handlers.detach_gpus)
    app.router.add_get("/v1/gpus", handlers.gpus)
    app.router.add_get("/v1/ports", handlers.ports)
    app.router.add_get("/v1/domains", handlers.domains)
    app.router.add_get("/v1/domains/{name:.+}", handlers.domain)
    app.router.add_get("/v1/incidents", handlers.incidents)
    app.router.add_get("/v1/incidents/{name}", handlers.incident)
    app.router.add_get("/v1/actions", handlers.node_actions)
    app.router.add_get("/v1/history", handlers.history)
    app.router.add_post("/v1/incidents/{name}", handlers.decide)
    app.router.add_post("/v1/pause", handlers.pause)
    app.router.add_post("/v1/resume", handlers.resume)
    app.router.add_post("/v1/unmark", handlers.unmark)
    return app


class _Handlers:
    """The handlers, one for each route."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def status(self, _: web.Request) -> web.Response:
        return _answer(fleet_status(self._context.planner, self._context.service(), self._context.now()))

    async def budgets(self, _: web.Request) -> web.Response:
        return _answer(list_budgets(self._context.planner, self._context.now()))

    async def nodes(self, request: web.Request) -> web.Response:
        selector = self._selector(request)
        return _answer(list_nodes(self._context.planner, self._context.now(), selector))

    async def node(self, request: web.Request) -> web.Response:
        name = _name(request)
        context = self._context
        page = describe_node(context.planner, context.service(), name, context.now(), context.checks)
        if page is None:
            raise _RefusedError(404, f"there is no node '{name}': see nodeguard get nodes")
        return _answer(page)

    async def preview_drain(self, request: web.Request) -> web.Response:
        node, cluster, context = self._node(_name(request)), self._drain_cluster(), self._context
        drains = context.service().drains
        return _answer(await preview_drain(context.planner, cluster, drains, node, context.now()))

    async def request_drain(self, request: web.Request) -> web.Response:
        wanted, node = await _body(request, DrainRequest), self._node(_name(request))
        cluster, context = self._drain_cluster(), self._context
        by = wanted.by or ANONYMOUS
        try:
            drains = await request_drains(
                context.planner, cluster, context.action_store, node, by, context.now()
            )
        except DrainRefusedError as error:
            raise _RefusedError(409, f"nothing is evicted: {error}") from None
        except ActionStoreError as error:
            raise _RefusedError(409, f"not done, as it cannot be stored: {error}") from None
        pods = count_noun(sum(len(drain.pods) for drain in drains), "pod")
        names = tuple(drain.key for drain in drains)
        message = f"{pods} of {node.name} will be evicted: NodeAction {', '.join(names)}"
        return _answer(DrainResult(message, names))

    def _node(self, name: str) -> InventoryNode:
        """Return a node by its name. Raises _RefusedError."""
        node = self._context.planner.node_named(name)
        if node is None:
            raise _RefusedError(404, f"there is no node '{name}': see nodeguard get nodes")
        return node

    def _drain_cluster(self) -> DrainCluster:
        """Return the cluster of drains. Raises _RefusedError if this aggregator has none."""
        cluster = self._context.drain_cluster()
        if cluster is not None:
            return cluster
        leader = self._context.service().leader
        if leader == STANDALONE:
            raise _RefusedError(409, "a drain needs Kubernetes: this aggregator runs without it")
        raise _RefusedError(409, f"only the aggregator that leads reads pods: {leader or 'none'}")

    async def gpus(self, request: web.Request) -> web.Response:
        return self._components(request, "gpu")

    async def ports(self, request: web.Request) -> web.Response:
        return self._components(request, "port")

    def _components(self, request: web.Request, kind: ComponentKind) -> web.Response:
        planner, now = self._context.planner, self._context.now()
        nodes = placements(planner, self._node_query(request), self._selector(request))
        return _answer(list_components(planner, now, kind, nodes))

    def _selector(self, request: web.Request) -> LabelSelector:
        """Return the selector of labels in the query. Raises _RefusedError."""
        try:
            selector = parse_label_selector(request.query.get("selector", ""))
        except SelectorError as error:
            raise _RefusedError(400, str(error)) from None
        nodes = self._context.planner.state.nodes.values()
        if selector.requirements and not any(node.labels for node in nodes):
            problem = "no node has labels here, as without Kubernetes: select nodes by name, such as 'gpu-*'"
            raise _RefusedError(409, problem)
        return selector

    def _node_query(self, request: web.Request) -> str:
        """Return the name of a node in the query, empty for none. Raises _RefusedError."""
        of = request.query.get("node", "")
        if of and not self._context.planner.state.uid(of):
            raise _RefusedError(404, f"there is no node '{of[:_NAME]}': see nodeguard get nodes")
        return of

    async def incidents(self, request: web.Request) -> web.Response:
        states = _states(request.query.getall("state", []))
        of = self._node_query(request)
        return _answer(
            list_incidents(self._context.planner, self._context.service(), self._context.now(), states, of)
        )

    async def incident(self, request: web.Request) -> web.Response:
        name = _name(request)
        context = self._context
        page = describe_incident(context.planner, context.service(), name, context.now(), context.checks)
        if page is None:
            raise _no_incident(name)
        return _answer(page)

    async def node_actions(self, request: web.Request) -> web.Response:
        uid = self._context.planner.state.uid(self._node_query(request))
        return _answer(list_actions(self._context.service(), self._context.now(), uid))

    async def domains(self, request: web.Request) -> web.Response:
        every = request.query.get("all", "") not in {"", "0", "no", "false"}
        return _answer(list_domains(self._context.planner, self._context.now(), include_healthy=every))

    async def domain(self, request: web.Request) -> web.Response:
        name = _name(request)
        matches = domains_named(self._context.planner, name)
        if not matches:
            raise _RefusedError(404, f"there is no domain '{name}': see nodeguard get domains --all")
        if len(matches) > 1:
            raise _RefusedError(409, f"'{name}' is several domains: write one of {first_names(matches)}")
        return _answer(describe_domain(self._context.planner, matches[0], self._context.now()))

    async def history(self, request: web.Request) -> web.Response:
        name, context, now = request.query.get("name", ""), self._context, self._context.now()
        if not context.history:
            raise _RefusedError(409, "this aggregator records no history: start it with --history DIR")
        since = now.wall - _seconds(request.query.get("since", ""))
        try:
            view = await asyncio.to_thread(read_history_view, context.history, name, since, now.wall)
        except HistoryError as error:
            raise _RefusedError(409, f"the history cannot be read: {error}") from None
        if not view.entries and name and not self._is_known(name):
            raise _RefusedError(404, f"there is no node, incident or domain '{name[:_NAME]}' in the history")
        return _answer(view)

    def _is_known(self, name: str) -> bool:
        """Return whether a name is that of a node, an incident or a domain."""
        planner = self._context.planner
        has_object = planner.node_named(name) is not None or planner.incident(name) is not None
        return has_object or bool(domains_named(planner, name))

    async def decide(self, request: web.Request) -> web.Response:
        name, wanted = _name(request), await _body(request, IncidentAction)
        actions = self._context.actions
        if wanted.false_alarm:
            return _answer(ActionResult(await self._false_alarm(name, wanted)))
        if wanted.action == "withdraw":
            return _answer(ActionResult(await self._withdraw(name, wanted)))
        if wanted.reason:
            raise _RefusedError(400, "a reason is for a false alarm only: add false_alarm, or leave it out")
        self._open(name)
        carry = actions.clear if wanted.action == "clear" else actions.acknowledge
        return _answer(ActionResult(await carry(name, wanted.by)))

    async def _false_alarm(self, name: str, wanted: IncidentAction) -> str:
        """Record a false alarm, and clear the incident if it is open. Returns the message. Raises
        _RefusedError, OperatorActionError.
        """
        if wanted.action != "clear":
            raise _RefusedError(400, "a false alarm is cleared: use the action clear")
        incident, actions = self._context.planner.incident(name), self._context.actions
        if incident is None or incident.is_open:
            self._open(name)
        recorded = await actions.record_false_alarm(name, self._statement(wanted))
        if incident is None or not incident.is_open:
            return recorded
        try:
            return f"{recorded}; {await actions.clear(name, wanted.by)}"
        except OperatorActionError as error:
            raise OperatorActionError(f"{recorded}, but not cleared: {error}") from None

    async def _withdraw(self, name: str, wanted: IncidentAction) -> str:
        """Withdraw a false alarm. Returns the message. Raises _RefusedError, OperatorActionError."""
        decision = self._context.service().decisions.get(name)
        if decision is None or not decision.is_false_alarm:
            if self._context.planner.incident(name) is None:
                raise _no_incident(name)
            raise _RefusedError(409, f"{name} is not recorded as a false alarm: there is nothing to withdraw")
        return await self._context.actions.record_false_alarm(name, self._statement(wanted))

    def _statement(self, wanted: IncidentAction) -> FalseAlarm:
        """Return the statement about a false alarm that an operator makes now."""
        at = rfc3339(self._context.now().wall)
        return FalseAlarm(wanted.by or ANONYMOUS, at, wanted.reason, withdrawn=wanted.action == "withdraw")

    def _open(self, name: str) -> None:
        """Check that an incident is open. Raises _RefusedError."""
        planner = self._context.planner
        incident = planner.incident(name)
        if incident is None or not incident.is_open:
            if planner.tracker.pending_incident(name) is not None:
                problem = f"{name} is in its grace period: there is nothing to decide before its end"
                raise _RefusedError(409, problem)
            if incident is None:
                raise _no_incident(name)
            raise _RefusedError(409, f"{name} is over already: there is nothing to decide")

    async def pause(self, request: web.Request) -> web.Response:
        wanted = await _body(request, PauseRequest)
        return _answer(ActionResult(await self._context.actions.pause(wanted.reason, wanted.by)))

    async def resume(self, request: web.Request) -> web.Response:
        wanted = await _body(request, ResumeRequest)
        return _answer(ActionResult(await self._context.actions.resume(wanted.by)))

    async def unmark(self, request: web.Request) -> web.Response:
        wanted, actions = await _body(request, UnmarkRequest), self._context.actions
        state = self._context.planner.state
        if not wanted.nodes:
            nodes = state.nodes.items()
            foreign = sorted(node.name for uid, node in nodes if state.marks.observed(uid).foreign)
            message = await actions.unmark(wanted.by)
            return _answer(ActionResult(message + foreign_taints_note(foreign)))
        names = tuple(dict.fromkeys(wanted.nodes))
        named = [self._context.planner.node_named(name) for name in names]
        for name, node in zip(names, named, strict=True):
            if node is None:
                raise _RefusedError(404, f"there is no node '{name}': nothing was changed")
        foreign = [node.name for node in named if node is not None and state.marks.observed(node.key).foreign]
        message = await actions.unmark_nodes(names, wanted.reason, wanted.by)
        return _answer(ActionResult(message + foreign_taints_note(foreign)))

    async def detach_gpus(self, request: web.Request) -> web.Response:
        wanted, name = await _body(request, GpusRequest), _name(request)
        node = self._node(name)
        wall = self._context.now().wall
        action = requested_detach(node, wanted.gpus, wanted.seconds, wanted.by, wall)
        try:
            await self._context.action_store.reserve(action)
        except ActionStoreError as error:
            raise _RefusedError(409, f"not done, as it cannot be stored: {error}") from None
        shown = f"NodeAction {action.key}; nodeguard describe node {name} shows its answer"
        return _answer(ActionResult(f"the agent of {name} is asked: {shown}"))


@web.middleware
async def _authorize_and_report_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse other users, and return every error in the same form."""
    transport = request.transport
    peer = transport.get_extra_info("socket") if transport is not None else None
    if peer is None or not is_authorized_peer(peer):
        return _error(403, "only root, or the user that the aggregator runs as, may ask: ask as one of them")
    try:
        return await handler(request)
    except _RefusedError as refused:
        return _error(refused.status, str(refused))
    except OperatorActionError as error:
        return _error(409, str(error))
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the request is too large: {_LIMIT} bytes at most")
    except web.HTTPMethodNotAllowed as error:
        allowed = " or ".join(sorted(error.allowed_methods))
        return _error(405, f"{request.method} is not for {request.path[:_NAME]}: use {allowed}")
    except web.HTTPException as error:
        remedy = "there is /v1/status, /v1/nodes, /v1/domains, /v1/incidents and /v1/history"
        return _error(error.status, f"{request.path[:_NAME]}: {error.reason}: {remedy}")
    except Exception as error:
        fields = {"method": request.method, "path": request.path[:_NAME]}
        logger.exception("internal error in an API request, please report it", extra=fields)
        return _error(500, f"{type(error).__name__}: {error}: see the aggregator's log")


async def _body(request: web.Request, form: type[_Wanted]) -> _Wanted:
    try:
        return msgspec.json.decode(printable_json(await request.read() or b"{}"), type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _RefusedError(400, f"{error}: both sides must be of one version") from None


def _name(request: web.Request) -> str:
    name = request.match_info["name"]
    if len(name) > _NAME:
        raise _RefusedError(404, f"a name has {_NAME} characters at most: this is none")
    return name


def _seconds(text: str) -> float:
    """Return the seconds of a query; a day if it is empty. Raises _RefusedError."""
    try:
        seconds = float(text or _DAY)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds <= _LONGEST_HISTORY:
        raise _RefusedError(400, f"since is '{text[:_NAME]}': it is a number of seconds, at most a year")
    return seconds


def _states(names: list[str]) -> frozenset[IncidentState]:
    """Return states by name, in any case; `all` for all states. Raises _RefusedError."""
    if any(name.lower() == "all" for name in names):
        return frozenset(IncidentState)
    by_name = {state.slug: state for state in IncidentState}
    for name in names:
        if name.lower() not in by_name:
            raise _RefusedError(400, f"'{name[:_NAME]}' is no state: there is all, {', '.join(by_name)}")
    return frozenset(by_name[name.lower()] for name in names)


def _no_incident(name: str) -> _RefusedError:
    return _RefusedError(404, f"there is no incident '{name}': see nodeguard get incidents --all")


def _answer(content: Struct, status_code: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content),
        status=status_code,
        content_type="application/json",
        charset="utf-8",
    )


def _error(status_code: int, error: str) -> web.Response:
    return _answer(ErrorResponse(error), status_code)


# Seconds for running responses at the end, and for idle connections.
_SHUTDOWN = 2.0
_KEEPALIVE = 15.0


@asynccontextmanager
async def serve_api(path: str, context: ApiContext) -> AsyncIterator[None]:
    """Serve the API at a socket path until the context ends. Raises OSError, see listening."""
    runner = web.AppRunner(
        application(context), access_log=None, keepalive_timeout=_KEEPALIVE, shutdown_timeout=_SHUTDOWN
    )
    async with listening(runner, path):
        yield
