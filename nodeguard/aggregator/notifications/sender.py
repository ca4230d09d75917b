"""The sender of notifications: delivers changes of incidents to webhooks, and stores undelivered ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import msgspec

from nodeguard.aggregator.clock import current_instant
from nodeguard.aggregator.notifications.formats import Notification, body_of
from nodeguard.aggregator.notifications.problem import delivery_problem
from nodeguard.aggregator.notifications.settings import NotificationSettings, Webhook
from nodeguard.aggregator.notifications.spool import (
    FILE_LIMIT,
    MAX_AGE,
    SpoolError,
    decode_spool,
    encode_spool,
    least_needed,
    message_of,
)
from nodeguard.aggregator.notifications.subscriptions import Subscriptions
from nodeguard.config.regular_file import read_regular_file
from nodeguard.delivery.attempt import Destination
from nodeguard.delivery.delivery import Delivery, DropReason
from nodeguard.delivery.queue import Message
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.local.atomic_write import atomic_write
from nodeguard.local.set_aside import set_aside
from nodeguard.model.action import NodeAction
from nodeguard.model.instant import Instant
from nodeguard.model.json_decoder import JsonDecoder

logger = logging.getLogger(__name__)

# Seconds between two writes of the spool.
_SAVE_INTERVAL = 0.5

FILE_NAME = "notifications.json"


class NotificationSender:
    """Notifies all webhooks of the changes of incidents, at least once, and in order for each incident.

    delivery: sends the messages; this is the owner of their state. now: returns the current time.
    Only the active aggregator adds notifications; each aggregator sends those that it has.
    """

    def __init__(self, settings: NotificationSettings, now: Callable[[], Instant] = current_instant) -> None:
        self.webhooks = settings.webhooks
        destinations = [
            Destination(item.name, item.url, partial(_body, item), item.secret, item.ca)
            for item in settings.webhooks
        ]
        self.delivery = Delivery(
            destinations, dropped=self._dropped, drop_choice=least_needed, wall=lambda: now().wall
        )
        self._now = now
        self._subscriptions = Subscriptions(settings.webhooks)
        self._is_read = False
        self._file = settings.spool_directory / FILE_NAME if settings.spool_directory else None
        self._saved = 0, 0
        self._spool_error = ""

    def plan_made(
        self,
        planner: Planner,
        plan: Plan,
        *,
        acts: bool,
        has_leader: bool,
        actions: Collection[NodeAction] = (),
    ) -> None:
        """Add the notifications of changed incidents. acts: whether the plan is applied here. has_leader:
        whether any aggregator leads. actions: all that are stored.
        """
        for webhook, notification in self._subscriptions.plan_made(
            planner,
            plan,
            self._now(),
            acts=acts,
            has_leader=has_leader,
            room=self.delivery.room(),
            actions=actions,
        ):
            self.add(webhook, notification)
        for item in self.webhooks:
            # Another aggregator notifies their ends: the receiver could get a beginning after its end.
            self.delivery.discard(item.name, self._subscriptions.unsent_ends(item.name))

    def add(self, webhook: str, notification: Notification) -> None:
        """Add a notification for the webhook of a name."""
        now = self._now().wall
        if notification.change == "resolved":
            self.delivery.renew(webhook, notification.incident, now + MAX_AGE)
        self.delivery.put(webhook, message_of(notification, now))

    def problem(self) -> str:
        """Return which webhooks do not accept notifications, why, and why the spool is not written; empty for
        none.
        """
        spool = f"a restart loses notifications: {self._spool_error}" if self._spool_error else ""
        return "; ".join(filter(None, (delivery_problem(self.delivery, self._now().wall), spool)))

    def _dropped(self, webhook: str, message: Message, reason: DropReason) -> None:
        """Notify the incident of a dropped message again, if the receiver does not have its state."""
        if message.kind == "opened":
            # Without it the receiver does not need the others.
            self.delivery.dropped[webhook] += self.delivery.discard(webhook, {message.key})
        elif any(item.key == message.key for item in self.delivery.waiting(webhook)):
            return
        try:
            notification = JsonDecoder(Notification).decode(message.payload)
        except msgspec.DecodeError:
            return  # of a file that was changed
        if reason in {"refused", "too large"}:
            self._subscriptions.refused(webhook, notification, self._now().mono)
        else:
            self._subscriptions.notify_again(webhook, notification)

    async def run(self) -> None:
        """Send until cancelled."""
        self.read_spool()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.delivery.run())
            if self._file is not None:
                tasks.create_task(self._save_changes(self._file))

    def read_spool(self) -> None:
        """Restore the spool of an earlier start, once: before the first plan, which needs the open incidents.

        A file that cannot be used is renamed.
        """
        path = self._file
        if path is None or self._is_read:
            return
        self._is_read = True
        try:
            waiting, states = decode_spool(_read(path))
        except FileNotFoundError:
            return
        except (OSError, SpoolError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            remedy = f"it is {_set_aside(path)}; its notifications are not sent"
            logger.error(  # noqa: TRY400 - the reason is a field
                "cannot use the spool of notifications",
                extra={"file": str(path), "error": reason, "remedy": remedy},
            )
            return
        self.delivery.restore(waiting)
        self._subscriptions.restore(states)

    async def _save_changes(self, path: Path) -> None:
        """Write the spool after each change, so that a restart sends what is pending.

        Until the next plan finds the incident of a refused message, the file keeps the message.
        """
        while True:
            revision = self.delivery.revision, self._subscriptions.revision
            if revision != self._saved and self._subscriptions.are_complete():
                waiting = {webhook.name: self.delivery.waiting(webhook.name) for webhook in self.webhooks}
                content = encode_spool(waiting, self._subscriptions.states())
                try:
                    await asyncio.to_thread(atomic_write, str(path), [content])
                    self._saved, self._spool_error = revision, ""
                except OSError as error:
                    reason = f"{path}: {error.strerror}: make room there, or make it writable"
                    if not self._spool_error:
                        fields = {"error": reason}
                        logger.error("cannot save notifications, a restart loses them", extra=fields)  # noqa: TRY400
                    self._spool_error = reason
            await asyncio.sleep(_SAVE_INTERVAL)


def _body(webhook: Webhook, payload: bytes) -> bytes:
    """Return the body of a request, with the secrets of the webhook, which the spool does not have."""
    return body_of(webhook, JsonDecoder(Notification).decode(payload))


def _read(path: Path) -> bytes:
    content = read_regular_file(path, FILE_LIMIT + 1)
    if len(content) > FILE_LIMIT:
        raise SpoolError(f"it has more than {FILE_LIMIT >> 20} MiB")
    return content


def _set_aside(path: Path) -> str:
    """Rename a file that cannot be used, and return what was done."""
    try:
        return f"renamed to {Path(set_aside(str(path))).name}"
    except OSError as error:
        return f"in the way and cannot be renamed ({error.strerror})"
