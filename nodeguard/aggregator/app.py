"""The aggregator application: builds the parts of one aggregator from its options and connects them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from nodeguard import __version__
from nodeguard.aggregator.access import Work, kubernetes_access, standalone_access
from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.actions.loop import ActionLoop
from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.history.component_faults import load_component_faults
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.server import IngestServer
from nodeguard.aggregator.listeners import (
    Decisions,
    address_text,
    page_address,
    serve_agents,
    serve_monitoring,
    serve_operators,
    service_state,
)
from nodeguard.aggregator.metrics import AggregatorMetrics
from nodeguard.aggregator.notifications.settings import NotificationSettings, read_notifications
from nodeguard.aggregator.notifications.webhooks import OwnerReports, Webhooks
from nodeguard.aggregator.options import AggregatorOptions
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.policy.reload import PolicyReloader, log_policy_warnings
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService
from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.executors.owners import NodeOwners
from nodeguard.fleet.act.clears import with_answers
from nodeguard.fleet.drains import fleet_drain_candidates, is_unread, limited_drains, node_restraint
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.local.open_files import connection_capacity, raise_limit
from nodeguard.model.action import NodeAction
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Policy, default_policy

logger = logging.getLogger(__name__)


class AggregatorApp:
    """One running aggregator. policy: reloads the policy file, None without a file."""

    def __init__(self, service: AggregatorService, policy: PolicyReloader | None, work: list[Work]) -> None:
        self.service = service
        self.policy = policy
        self._work = work

    @classmethod
    async def start(cls, options: AggregatorOptions, catalogue: Catalogue, stack: AsyncExitStack) -> Self:
        """Build the application. The stack closes what it opens. Raises UserError."""
        checks = {check.id: check.health for check in catalogue.checks}
        policy = None
        if options.policy is not None:
            policy = PolicyReloader(
                options.policy, checks, catalogue.fault_classes, has_pods=not options.standalone
            )
        notifications = _notifications(options)
        owners = NodeOwners() if notifications is None else notifications.owners()
        # Without Kubernetes a mark is advice, unless a webhook owns the nodes, which are all there.
        is_advice = options.standalone and not owners
        granted = IncidentState.ADVISED if is_advice else IncidentState.MARKED
        topologies = {check.id: check.topologies for check in catalogue.checks}
        cluster = None if options.standalone else ObservedCluster(owners)
        carries = None if cluster is None else cluster.carries
        planner = Planner(_initial_policy(policy, catalogue), checks, granted, topologies, carries)
        metrics = AggregatorMetrics(planner)
        wake, wake_actions = asyncio.Event(), asyncio.Event()
        outbox = InstructionOutbox(wake_actions.set)
        inputs = FleetInputs(planner, wake.set, wake_actions=wake_actions.set)
        if cluster is None:
            access = await standalone_access(options, planner, inputs, owners, stack)
        else:
            access = await kubernetes_access(options, planner, inputs, cluster, metrics)
        backend, certificate = access.backend, access.certificate
        stack.push_async_callback(backend.close)

        def decisions() -> dict[str, OperatorDecision]:
            return with_answers(backend.decisions(), backend.action_store.actions(), planner.incident)

        def has_all_nodes() -> bool:
            return not options.standalone and not backend.missing_inputs()

        history = _history(
            options, planner, inputs, decisions, backend.action_store.actions, has_all_nodes, stack
        )
        handler = ReportHandler(
            planner,
            inputs,
            outbox,
            current_instant,
            backend.node_reported,
            history,
            on_detected=metrics.finding_detected,
        )

        def reload(now: Instant) -> None:
            if policy is not None and (error := policy(planner, now)):
                backend.policy_rejected(error)

        service = AggregatorService(planner, inputs, backend, handler, reload, wake, history)
        service.plan_listeners.append(lambda _plan, _now: wake_actions.set())
        drains = DrainRunner(
            DrainFleet(
                lambda: planner.policy.drain,
                lambda now: fleet_drain_candidates(planner, now, backend.action_store.actions()),
                lambda ready, age, use: limited_drains(
                    planner, backend.action_store.actions(), ready, age, use
                ),
                partial(node_restraint, planner),
                partial(is_unread, planner),
            ),
            backend.action_store,
            lambda: backend.drain_cluster if service.is_active else None,
            on_changed=wake_actions.set,
        )
        service.plan_listeners.append(lambda _plan, _now: drains.wake())
        actions = ActionLoop(backend, outbox, planner, drains, may_write=lambda: service.is_leader)
        service.capacity = capacity = connection_capacity(raise_limit(), IngestLimits().connections)
        ingest = IngestServer(
            access.authenticator,
            handler,
            certificate.context if certificate is not None else lambda: None,
            IngestLimits(connections=capacity.connections),
            on_refused=handler.message_refused,
            on_handled=metrics.message_handled,
        )
        webhooks = _webhooks(notifications, owners, service, inputs)
        metrics.observe(service, ingest, policy, current_instant, webhooks, certificate, drains)
        await serve_monitoring(options, metrics, service, stack)
        state = service_state(service, decisions, policy, webhooks, drains.reports)
        await serve_operators(options, service, state, catalogue, stack)
        work = [*access.work, service.run(), actions.run(wake_actions), drains.run()]
        work.append(serve_agents(options.listen, ingest, certificate, service))
        if certificate is not None:
            work.append(certificate.run())
        if webhooks is not None:
            work.append(webhooks.run())
        stack.push_async_callback(ingest.close)
        _log_start(options, len(checks), capacity.connections, capacity.open_files)
        return cls(service, policy, work)

    def tasks(self) -> Iterable[Work]:
        """Return the coroutines that run until the aggregator stops."""
        return self._work

    def request_reload(self) -> None:
        """Read the policy file again at the next turn, even if it has not changed."""
        if self.policy is not None:
            self.policy.is_requested = True


def _log_start(options: AggregatorOptions, checks: int, connections: int, open_files: int) -> None:
    """Log the mode, the addresses, the files and the limits of this aggregator."""
    fields = {
        "version": __version__,
        "mode": "standalone" if options.standalone else "kubernetes",
        "listen": address_text(options.listen),
        "metrics": f"http://{address_text(options.metrics)}/metrics",
        "page": page_address(options.page),
        "socket": options.socket,
        "policy": str(options.policy)
        if options.policy is not None
        else "none: observe mode, no node is marked",
        "checks": checks,
        "history": options.history,
        "max_agent_connections": connections,
        "open_files_limit": open_files,
    }
    logger.info("aggregator started", extra=fields)


def _initial_policy(reloader: PolicyReloader | None, catalogue: Catalogue) -> Policy:
    if reloader is None:
        return default_policy(catalogue.fault_classes)
    policy, warnings = reloader.read(time.time())
    log_policy_warnings(warnings)
    return policy


def _history(
    options: AggregatorOptions,
    planner: Planner,
    inputs: FleetInputs,
    decisions: Decisions,
    actions: Callable[[], Collection[NodeAction]],
    has_all_nodes: Callable[[], bool],
    stack: AsyncExitStack,
) -> History | None:
    if not options.history:
        return None
    faults = planner.component_faults.history
    loading = asyncio.create_task(load_component_faults(options.history, faults))
    stack.callback(loading.cancel)
    limits = HistoryLimits(options.history_days, options.history_mib)
    writer = HistoryWriter(history_path(options.history), limits)
    stack.push_async_callback(asyncio.to_thread, writer.close)
    started_at = current_instant().mono
    return History(
        planner,
        decisions,
        writer,
        started_at,
        resumed=lambda: inputs.resumed,
        actions=actions,
        has_all_nodes=has_all_nodes,
    )


def _notifications(options: AggregatorOptions) -> NotificationSettings | None:
    """Return the settings of the notification file; None without one. Raises ConfigError."""
    if options.notifications is None:
        return None
    return read_notifications(options.notifications, standalone=options.standalone)


def _webhooks(
    settings: NotificationSettings | None, owners: NodeOwners, service: AggregatorService, inputs: FleetInputs
) -> Webhooks | None:
    """Return the webhooks, which receive each plan; None without settings."""
    if settings is None:
        return None
    planner, backend = service.planner, service.backend
    webhooks = Webhooks(
        settings,
        owners=owners,
        reports=lambda name: OwnerReports(name, owners, planner, inputs, backend.marks_accepted),
    )
    webhooks.sender.read_spool()

    def plan_made(plan: Plan, _: Instant) -> None:
        webhooks.plan_made(
            service.planner,
            plan,
            epoch=service.backend.epoch,
            acts=service.is_active,
            has_leader=bool(service.backend.leader),
            actions=service.backend.action_store.actions(),
        )

    service.plan_listeners.append(plan_made)
    return webhooks
