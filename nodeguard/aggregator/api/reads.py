"""Reads of the API: what an operator can see of the fleet."""

from __future__ import annotations

import asyncio

from aiohttp import web

from nodeguard.aggregator.actions.drain_preview import preview_drain
from nodeguard.aggregator.api.context import ApiContext
from nodeguard.aggregator.api.responses import MAX_NAME, RefusedError, answer, name_in_path, no_incident
from nodeguard.aggregator.history.changes import read_history_view
from nodeguard.aggregator.history.reader import HistoryError
from nodeguard.fleet_api.action import list_actions
from nodeguard.fleet_api.component import ComponentKind, list_components
from nodeguard.fleet_api.domain import describe_domain, domains_named, list_domains
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.node import describe_node, list_nodes, placements
from nodeguard.fleet_api.status import fleet_status, list_budgets
from nodeguard.fleet_api.text.wording import first_names
from nodeguard.model.incident import IncidentState
from nodeguard.model.label_selector import LabelSelector, SelectorError, parse_label_selector

# Seconds of history by default, and at most.
_DAY, _LONGEST_HISTORY = 86_400.0, 366 * 86_400.0


class Reads:
    """The handlers of GET, one for each route."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def status(self, _: web.Request) -> web.Response:
        """GET /v1/status."""
        return answer(fleet_status(self._context.planner, self._context.service(), self._context.now()))

    async def budgets(self, _: web.Request) -> web.Response:
        """GET /v1/budgets."""
        return answer(list_budgets(self._context.planner, self._context.now()))

    async def nodes(self, request: web.Request) -> web.Response:
        """GET /v1/nodes, by selector of labels."""
        selector = self._selector(request)
        return answer(list_nodes(self._context.planner, self._context.now(), selector))

    async def node(self, request: web.Request) -> web.Response:
        """GET /v1/nodes/{name}."""
        name = name_in_path(request)
        context = self._context
        page = describe_node(context.planner, context.service(), name, context.now(), context.checks)
        if page is None:
            raise RefusedError(404, f"there is no node '{name}': see nodeguard get nodes")
        return answer(page)

    async def preview_drain(self, request: web.Request) -> web.Response:
        """GET /v1/nodes/{name}/drain: what a drain would evict now."""
        node, cluster, context = (
            self._context.node(name_in_path(request)),
            self._context.leading_cluster(),
            self._context,
        )
        drains, actions = context.service().drains, context.action_store.actions()
        preview = await preview_drain(context.planner, cluster, drains, actions, node, context.now())
        return answer(preview)

    async def gpus(self, request: web.Request) -> web.Response:
        """GET /v1/gpus, of a node or by selector."""
        return self._components(request, "gpu")

    async def ports(self, request: web.Request) -> web.Response:
        """GET /v1/ports, of a node or by selector."""
        return self._components(request, "port")

    def _components(self, request: web.Request, kind: ComponentKind) -> web.Response:
        planner, now = self._context.planner, self._context.now()
        nodes = placements(planner, self._node_query(request), self._selector(request))
        return answer(list_components(planner, now, kind, nodes))

    def _selector(self, request: web.Request) -> LabelSelector:
        """Return the selector of labels in the query. Raises RefusedError."""
        try:
            selector = parse_label_selector(request.query.get("selector", ""))
        except SelectorError as error:
            raise RefusedError(400, str(error)) from None
        nodes = self._context.planner.state.nodes.values()
        if selector.requirements and not any(node.labels for node in nodes):
            problem = "no node has labels here, as without Kubernetes: select nodes by name, such as 'gpu-*'"
            raise RefusedError(409, problem)
        return selector

    def _node_query(self, request: web.Request) -> str:
        """Return the name of a node in the query, empty for none. Raises RefusedError."""
        of = request.query.get("node", "")
        if of and not self._context.planner.state.uid(of):
            raise RefusedError(404, f"there is no node '{of[:MAX_NAME]}': see nodeguard get nodes")
        return of

    async def incidents(self, request: web.Request) -> web.Response:
        """GET /v1/incidents, by state and of a node."""
        states = _states(request.query.getall("state", []))
        of = self._node_query(request)
        return answer(
            list_incidents(self._context.planner, self._context.service(), self._context.now(), states, of)
        )

    async def incident(self, request: web.Request) -> web.Response:
        """GET /v1/incidents/{name}."""
        name = name_in_path(request)
        context = self._context
        page = describe_incident(context.planner, context.service(), name, context.now(), context.checks)
        if page is None:
            raise no_incident(name)
        return answer(page)

    async def node_actions(self, request: web.Request) -> web.Response:
        """GET /v1/actions, of a node or of all."""
        uid = self._context.planner.state.uid(self._node_query(request))
        return answer(list_actions(self._context.service(), self._context.now(), uid))

    async def domains(self, request: web.Request) -> web.Response:
        """GET /v1/domains: the degraded ones, or all."""
        every = request.query.get("all", "") not in {"", "0", "no", "false"}
        return answer(list_domains(self._context.planner, self._context.now(), include_healthy=every))

    async def domain(self, request: web.Request) -> web.Response:
        """GET /v1/domains/{name}."""
        name = name_in_path(request)
        matches = domains_named(self._context.planner, name)
        if not matches:
            raise RefusedError(404, f"there is no domain '{name}': see nodeguard get domains --all")
        if len(matches) > 1:
            raise RefusedError(409, f"'{name}' is several domains: write one of {first_names(matches)}")
        context = self._context
        return answer(describe_domain(context.planner, context.service(), matches[0], context.now()))

    async def history(self, request: web.Request) -> web.Response:
        """GET /v1/history of a name, or of all."""
        name, context, now = request.query.get("name", ""), self._context, self._context.now()
        if not context.history:
            raise RefusedError(409, "this aggregator records no history: start it with --history DIR")
        since = now.wall - _seconds(request.query.get("since", ""))
        try:
            view = await asyncio.to_thread(read_history_view, context.history, name, since, now.wall)
        except HistoryError as error:
            raise RefusedError(409, f"the history cannot be read: {error}") from None
        if not view.entries and name and not self._is_known(name):
            raise RefusedError(
                404, f"there is no node, incident or domain '{name[:MAX_NAME]}' in the history"
            )
        return answer(view)

    def _is_known(self, name: str) -> bool:
        """Return whether a name is that of a node, an incident or a domain."""
        planner = self._context.planner
        has_object = planner.node_named(name) is not None or planner.incident(name) is not None
        return has_object or bool(domains_named(planner, name))


def _seconds(text: str) -> float:
    """Return the seconds of a query; a day if it is empty. Raises RefusedError."""
    try:
        seconds = float(text or _DAY)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds <= _LONGEST_HISTORY:
        raise RefusedError(400, f"since is '{text[:MAX_NAME]}': it is a number of seconds, at most a year")
    return seconds


def _states(names: list[str]) -> frozenset[IncidentState]:
    """Return states by name, in any case; `all` for all states. Raises RefusedError."""
    if any(name.lower() == "all" for name in names):
        return frozenset(IncidentState)
    by_name = {state.slug: state for state in IncidentState}
    for name in names:
        if name.lower() not in by_name:
            raise RefusedError(400, f"'{name[:MAX_NAME]}' is no state: there is all, {', '.join(by_name)}")
    return frozenset(by_name[name.lower()] for name in names)
