"""The listeners of the aggregator: metrics, operators' commands, the status page, and agents."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

from nodeguard import __version__
from nodeguard.aggregator.access import StartError
from nodeguard.aggregator.api.context import ApiContext
from nodeguard.aggregator.api.server import serve_api
from nodeguard.aggregator.certificates.serving_certificate import CertificateRefresher
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.monitoring_server import Page, serve
from nodeguard.aggregator.notifications.webhooks import Webhooks
from nodeguard.aggregator.options import AggregatorOptions
from nodeguard.aggregator.pages.handler import PagesContext, StatusPages, serve_pages
from nodeguard.aggregator.policy.reload import PolicyReloader
from nodeguard.aggregator.service import AggregatorService
from nodeguard.aggregator.write_obstacle import ReplicaState, is_ready, write_obstacle
from nodeguard.fleet.act.drain_report import DrainReport
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.judge.formatting import format_duration, general_remedy
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.incident import OperatorDecision

logger = logging.getLogger(__name__)

# Seconds without a turn of the loop after which the process is not healthy: longer than a turn that waits in
# vain for an API server.
_STUCK = 60.0

# Returns operators' decisions with their results, by name of the incident.
Decisions = Callable[[], dict[str, OperatorDecision]]

# Seconds between two attempts to listen for agents.
_LISTEN_RETRY = 5.0


async def serve_monitoring(
    options: AggregatorOptions,
    metrics: AggregatorMetrics,
    service: AggregatorService,
    stack: AsyncExitStack,
) -> None:
    """Serve /metrics, /healthz and /readyz. Raises StartError."""

    def alive(_accept: str) -> Page:
        stuck = current_instant().mono - service.turned_at
        if stuck < _STUCK:
            return Page(200, "alive\n")
        return Page(503, f"no turn of the plan loop for {stuck:.0f} s\n")

    def ready(_accept: str) -> Page:
        now = current_instant()
        return readiness_page(service.replica_state(now), now.mono)

    pages = {"/metrics": metrics.page, "/healthz": alive, "/readyz": ready}
    try:
        await stack.enter_async_context(serve(options.metrics, pages))
    except OSError as error:
        host, port = options.metrics
        raise StartError(f"--metrics {host}:{port}: cannot listen: {_reason(error)}: name another") from None


def readiness_page(replica: ReplicaState, now: float) -> Page:
    """Return the page at /readyz: its first line has the reason why nothing is written, and since when."""
    if replica.listen_problem:
        return Page(503, f"not ready: {replica.listen_problem}\n")
    obstacle = write_obstacle(replica, now)
    if obstacle is None:
        return Page(200, "ready\n")
    ready = is_ready(replica, now)
    state = "ready, on standby" if obstacle.kind == "standby" else "ready" if ready else "not ready"
    seconds = format_duration(max(0.0, now - obstacle.since))
    return Page(200 if ready else 503, f"{state} for {seconds}: {obstacle.reason}\n")


def service_state(
    service: AggregatorService,
    decisions: Decisions,
    policy: PolicyReloader | None,
    webhooks: Webhooks | None = None,
    drains: Callable[[], tuple[DrainReport, ...]] = tuple,
) -> Callable[[], ServiceState]:
    """Return the function that returns the state of the service, for responses. drains: returns the reports
    of drains; none where this aggregator does not lead.
    """

    def state() -> ServiceState:
        now = current_instant()
        obstacle = service.obstacle(now)
        if obstacle is None and webhooks is not None:
            obstacle = webhooks.obstacle(service.planner.state.owned_nodes())
        return ServiceState(
            leader=service.backend.leader,
            is_leader=service.is_leader,
            obstacle=obstacle,
            lacks_reports_since=service.candidacy.lacks_reports_since,
            started=service.started_at,
            plan_age=now.mono - service.planned_at if service.plans else None,
            policy_file=str(policy.file) if policy is not None else "",
            policy_error=policy.error if policy is not None else "",
            version=__version__,
            decisions=decisions(),
            actions=service.backend.action_store.actions(),
            refused=service.refusals.recent(now.mono),
            connection_shortage=service.listen_problem or service.capacity_problem,
            notification_problem=webhooks.problem() if webhooks is not None else "",
            refused_requests=service.backend.refused_requests(),
            history_problem=service.history.writer.problem if service.history is not None else "",
            state_problem=service.backend.state_problem,
            drains=drains(),
            rejected_pods=service.backend.rejected_pods,
        )

    return state


async def serve_operators(
    options: AggregatorOptions,
    service: AggregatorService,
    state: Callable[[], ServiceState],
    catalogue: Catalogue,
    stack: AsyncExitStack,
) -> None:
    """Serve the API and the status page. The aggregator also runs if they cannot listen."""
    if options.socket:
        checks = {check.id: check for check in catalogue.checks}
        history = history_path(options.history) if options.history else ""
        actions, store = service.backend.actions, service.backend.action_store
        api = ApiContext(
            service.planner,
            state,
            current_instant,
            actions,
            store,
            checks,
            history,
            lambda: service.backend.drain_cluster if service.is_active else None,
        )
        try:
            await stack.enter_async_context(serve_api(options.socket, api))
        except OSError as error:
            logger.error(  # noqa: TRY400 - the error has no more than its reason
                "cannot serve the API socket, nodeguard status and other commands cannot reach this "
                "aggregator",
                extra={
                    "socket": options.socket,
                    "error": error.strerror or str(error),
                    "remedy": "name another --socket",
                },
            )
    if options.page is not None:
        remedies = {check.id: general_remedy(check) for check in catalogue.checks}
        pages = PagesContext(service.planner, state, current_instant, remedies, catalogue, options.history)
        try:
            await stack.enter_async_context(serve_pages(options.page, StatusPages(pages)))
        except OSError as error:
            logger.error(  # noqa: TRY400 - the error has no more than its reason
                "cannot serve the status page",
                extra={
                    "page": page_address(options.page),
                    "error": _reason(error),
                    "remedy": "name another --page",
                },
            )


def page_address(page: tuple[str, int] | str | None) -> str:
    """Return the address of the status page as text; empty for none."""
    if page is None or isinstance(page, str):
        return page or ""
    return f"http://{address_text(page)}/"


async def serve_agents(
    listen: tuple[str, int],
    ingest: IngestServer,
    certificate: CertificateRefresher | None,
    service: AggregatorService,
) -> None:
    """Listen for agents as soon as a serving certificate is available. service: has the problem before."""

    def certificate_unavailable(reason: str) -> None:
        service.listen_problem = f"cannot listen for agents without a serving certificate: {reason}"

    if certificate is not None:
        certificate_unavailable("it is not read yet")
        await certificate.wait_available(certificate_unavailable)
    while True:
        try:
            await ingest.listen(*listen)
            break
        except OSError as error:
            address, reason = address_text(listen), _reason(error)
            remedy = "stop the process that uses this address, or name another --listen"
            logger.error(  # noqa: TRY400 - the reason is a field
                "cannot listen for agents", extra={"address": address, "error": reason, "remedy": remedy}
            )
            service.listen_problem = f"cannot listen for agents at {address}: {reason}: {remedy}"
            await asyncio.sleep(_LISTEN_RETRY)
    service.listen_problem = ""
    logger.info("listens for agents", extra={"address": address_text(listen)})
    await asyncio.Event().wait()


def _reason(error: OSError) -> str:
    """Return the reason of a failed bind. A server's own text repeats the address; a name that cannot be
    resolved has no error number of the system.
    """
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


def address_text(address: tuple[str, int]) -> str:
    """Return an address as text: `[::1]:8443`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
