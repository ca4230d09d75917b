"""The HTTP API at a local socket: its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from nodeguard.aggregator.api.changes import Changes
from nodeguard.aggregator.api.context import ApiContext
from nodeguard.aggregator.api.decisions import Decisions
from nodeguard.aggregator.api.reads import Reads
from nodeguard.aggregator.api.responses import MAX_BODY, authorize_and_report_errors
from nodeguard.aggregator.http_listener import listening


def application(context: ApiContext) -> web.Application:
    """Return the application with all routes."""
    reads, changes, decisions = Reads(context), Changes(context), Decisions(context)
    app = web.Application(middlewares=[authorize_and_report_errors], client_max_size=MAX_BODY)
    app.router.add_get("/v1/status", reads.status)
    app.router.add_get("/v1/budgets", reads.budgets)
    app.router.add_get("/v1/nodes", reads.nodes)
    app.router.add_get("/v1/nodes/{name}", reads.node)
    app.router.add_get("/v1/nodes/{name}/drain", reads.preview_drain)
    app.router.add_post("/v1/nodes/{name}/drain", changes.request_drain)
    app.router.add_post("/v1/nodes/{name}/gpus", changes.detach_gpus)
    app.router.add_get("/v1/gpus", reads.gpus)
    app.router.add_get("/v1/ports", reads.ports)
    app.router.add_get("/v1/domains", reads.domains)
    app.router.add_get("/v1/domains/{name:.+}", reads.domain)
    app.router.add_get("/v1/incidents", reads.incidents)
    app.router.add_get("/v1/incidents/{name}", reads.incident)
    app.router.add_get("/v1/actions", reads.node_actions)
    app.router.add_get("/v1/history", reads.history)
    app.router.add_post("/v1/incidents/{name}", decisions.decide)
    app.router.add_post("/v1/pause", changes.pause)
    app.router.add_post("/v1/resume", changes.resume)
    app.router.add_post("/v1/unmark", changes.unmark)
    return app


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
