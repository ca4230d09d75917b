"""All webhooks of the notification file: those that receive incidents, and those that receive marks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.fleet_inputs import FleetInputs, FleetView
from nodeguard.aggregator.notifications.mark_mirror import MarkMirror
from nodeguard.aggregator.notifications.problem import delivery_problem, owner_obstacle
from nodeguard.aggregator.notifications.sender import NotificationSender
from nodeguard.aggregator.notifications.settings import NotificationSettings
from nodeguard.delivery.attempt import Destination
from nodeguard.delivery.delivery import Delivery
from nodeguard.executors.executor import ExecutorReports
from nodeguard.executors.owners import NodeOwners
from nodeguard.executors.webhook.executor import WebhookExecutor
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.service_state import Obstacle
from nodeguard.model.action import NodeAction
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkRecord


class OwnerReports:
    """Passes what the receiver of one webhook accepts and refuses on; see ExecutorReports.

    owners: gets what is accepted; accepted: is called after it, with the key of the node.
    """

    def __init__(
        self,
        webhook: str,
        owners: NodeOwners,
        fleet: FleetView,
        inputs: FleetInputs,
        accepted: Callable[[str], object],
    ) -> None:
        self._webhook, self._owners = webhook, owners
        self._fleet, self._inputs, self._accepted = fleet, inputs, accepted

    def marks_written(self, node: str, record: MarkRecord) -> None:
        """Record that the receiver has accepted the latest marks of a node."""
        if self._is_owner(node):
            self._owners.accepted[node] = frozenset(record.marks)
            self._accepted(node)

    def write_failed(self, node: str, error: WriteError) -> None:
        """Record the error of a request about a node."""
        if self._is_owner(node):
            self._inputs.write_failed(node, error)

    def _is_owner(self, node: str) -> bool:
        """Return whether the node has this owner: its labels may have changed since the request."""
        inventory_node = self._fleet.node(node)
        return inventory_node is not None and inventory_node.owner == self._webhook


class Webhooks:
    """The sender of notifications and the mirror of the marks.

    now: returns the current time. owners: of nodes. reports: returns the receiver of the results of a webhook
    that owns nodes.
    """

    def __init__(
        self,
        settings: NotificationSettings,
        now: Callable[[], Instant] = current_instant,
        *,
        owners: NodeOwners | None = None,
        reports: Callable[[str], ExecutorReports] | None = None,
    ) -> None:
        self.sender = NotificationSender(settings, now)
        executors = {
            item.name: WebhookExecutor(
                Destination(item.name, item.url, bytes, item.secret, item.ca),
                reports(item.name) if reports is not None and item.owns is not None else None,
                wall=lambda: now().wall,
            )
            for item in settings.mark_webhooks
        }
        self.mirror = MarkMirror(executors, owners or NodeOwners())
        self._now = now

    @property
    def deliveries(self) -> list[Delivery]:
        """Return the deliveries to all webhooks."""
        return [self.sender.delivery, *(executor.delivery for executor in self.mirror.executors.values())]

    def plan_made(
        self,
        planner: Planner,
        plan: Plan,
        *,
        epoch: int,
        acts: bool,
        has_leader: bool,
        actions: Collection[NodeAction] = (),
    ) -> None:
        """Notify what a plan changed. epoch: of the lease. acts: whether the plan is applied here.
        has_leader: whether any aggregator leads. actions: all that are stored.
        """
        self.sender.plan_made(planner, plan, acts=acts, has_leader=has_leader, actions=actions)
        self.mirror.plan_made(planner, epoch if acts else None)

    def problem(self) -> str:
        """Return which webhooks do not accept requests, and why; empty for none."""
        now = self._now().wall
        marks = (
            delivery_problem(executor.delivery, now, "message") for executor in self.mirror.executors.values()
        )
        return "; ".join(filter(None, (self.sender.problem(), *marks)))

    def obstacle(self, owned: Mapping[str, int]) -> Obstacle | None:
        """Return what keeps the marks of owned nodes from their webhook. owned: their number by webhook."""
        deliveries = [executor.delivery for executor in self.mirror.executors.values()]
        return owner_obstacle(deliveries, owned, self._now())

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.sender.run())
            for executor in self.mirror.executors.values():
                tasks.create_task(executor.run())
