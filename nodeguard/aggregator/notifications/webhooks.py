"""All webhooks of the notification file: those that receive incidents, and those that receive marks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.notifications.mark_mirror import MarkMirror
from nodeguard.aggregator.notifications.problem import delivery_problem
from nodeguard.aggregator.notifications.sender import NotificationSender
from nodeguard.aggregator.notifications.settings import NotificationSettings
from nodeguard.delivery.attempt import Destination
from nodeguard.delivery.delivery import Delivery
from nodeguard.executors.webhook.executor import WebhookExecutor
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.instant import Instant


class Webhooks:
    """The sender of notifications and the mirror of the marks. now: returns the current time."""

    def __init__(self, settings: NotificationSettings, now: Callable[[], Instant] = current_instant) -> None:
        self.sender = NotificationSender(settings, now)
        self.mirror = MarkMirror(
            WebhookExecutor(
                Destination(item.name, item.url, bytes, item.secret, item.ca), wall=lambda: now().wall
            )
            for item in settings.mark_webhooks
        )
        self._now = now

    @property
    def deliveries(self) -> list[Delivery]:
        """Return the deliveries to all webhooks."""
        return [self.sender.delivery, *(executor.delivery for executor in self.mirror.executors)]

    def plan_made(self, planner: Planner, plan: Plan, *, epoch: int, acts: bool, has_leader: bool) -> None:
        """Notify what a plan changed. epoch: of the lease. acts: whether the plan is applied here.
        has_leader: whether any aggregator leads.
        """
        self.sender.plan_made(planner, plan, acts=acts, has_leader=has_leader)
        self.mirror.plan_made(planner, epoch if acts else None)

    def problem(self) -> str:
        """Return which webhooks do not accept requests, and why; empty for none."""
        now = self._now().wall
        marks = (delivery_problem(executor.delivery, now, "message") for executor in self.mirror.executors)
        return "; ".join(filter(None, (self.sender.problem(), *marks)))

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.sender.run())
            for executor in self.mirror.executors:
                tasks.create_task(executor.run())
