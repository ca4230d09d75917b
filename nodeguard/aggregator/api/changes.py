"""Requests of the API that change nodes."""

from __future__ import annotations

from aiohttp import web

from nodeguard.aggregator.actions.drain_requests import DrainRefusedError, request_drains
from nodeguard.aggregator.api.context import ApiContext
from nodeguard.aggregator.api.requests import (
    ActionResult,
    DrainRequest,
    DrainResult,
    GpusRequest,
    PauseRequest,
    ResumeRequest,
    UnmarkRequest,
)
from nodeguard.aggregator.api.responses import RefusedError, answer, decoded_body, name_in_path
from nodeguard.aggregator.backends.operator_actions import ANONYMOUS, foreign_taints_note
from nodeguard.fleet.act.detaches import requested_detach
from nodeguard.fleet_api.text.drain import requested_drains_text
from nodeguard.model.action_store import ActionStoreError


class Changes:
    """The handlers of POST, one for each route."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def request_drain(self, request: web.Request) -> web.Response:
        """POST /v1/nodes/{name}/drain."""
        wanted, node = await decoded_body(request, DrainRequest), self._context.node(name_in_path(request))
        cluster, context = self._context.leading_cluster(), self._context
        by = wanted.by or ANONYMOUS
        try:
            drains = await request_drains(
                context.planner, cluster, context.action_store, node, by, context.now()
            )
        except DrainRefusedError as error:
            raise RefusedError(409, f"nothing is evicted: {error}") from None
        except ActionStoreError as error:
            see = f"nodeguard get actions -n {node.name} shows what is recorded"
            raise RefusedError(409, f"not recorded, or the answer was lost: {error}; {see}") from None
        names = tuple(drain.key for drain in drains)
        message = f"{requested_drains_text(drains)}: NodeAction {', '.join(names)}"
        return answer(DrainResult(message, names))

    async def pause(self, request: web.Request) -> web.Response:
        """POST /v1/pause."""
        wanted = await decoded_body(request, PauseRequest)
        return answer(ActionResult(await self._context.actions.pause(wanted.reason, wanted.by)))

    async def resume(self, request: web.Request) -> web.Response:
        """POST /v1/resume."""
        wanted = await decoded_body(request, ResumeRequest)
        return answer(ActionResult(await self._context.actions.resume(wanted.by)))

    async def unmark(self, request: web.Request) -> web.Response:
        """POST /v1/unmark, of named nodes or of all."""
        wanted, actions = await decoded_body(request, UnmarkRequest), self._context.actions
        state = self._context.planner.state
        if not wanted.nodes:
            nodes = state.nodes.items()
            foreign = sorted(node.name for uid, node in nodes if state.marks.observed(uid).foreign)
            message = await actions.unmark(wanted.by)
            return answer(ActionResult(message + foreign_taints_note(foreign)))
        names = tuple(dict.fromkeys(wanted.nodes))
        named = [self._context.planner.node_named(name) for name in names]
        for name, node in zip(names, named, strict=True):
            if node is None:
                raise RefusedError(404, f"there is no node '{name}': nothing was changed")
        foreign = [node.name for node in named if node is not None and state.marks.observed(node.key).foreign]
        message = await actions.unmark_nodes(names, wanted.reason, wanted.by)
        return answer(ActionResult(message + foreign_taints_note(foreign)))

    async def detach_gpus(self, request: web.Request) -> web.Response:
        """POST /v1/nodes/{name}/gpus: the agent lets go of GPUs for a while."""
        wanted, name = await decoded_body(request, GpusRequest), name_in_path(request)
        node = self._context.node(name)
        wall = self._context.now().wall
        action = requested_detach(node, wanted.gpus, wanted.seconds, wanted.by, wall)
        try:
            await self._context.action_store.reserve(action)
        except ActionStoreError as error:
            raise RefusedError(409, f"not done, as it cannot be stored: {error}") from None
        shown = f"NodeAction {action.key}; nodeguard describe node {name} shows its answer"
        return answer(ActionResult(f"the agent of {name} is asked: {shown}"))
