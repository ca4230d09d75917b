"""The sender of notifications: one task for each webhook, which retries until the receiver accepts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import time

import aiohttp

from nodeguard.aggregator.notifications.formats import (
    Notification,
    body_of,
    notification_of,
    signed_headers,
)
from nodeguard.aggregator.notifications.settings import NotificationSettings, Webhook
from nodeguard.aggregator.notifications.spool import FILE_LIMIT, NotificationSpool, SpoolError
from nodeguard.aggregator.notifications.subscription import Subscription
from nodeguard.fleet.incidents.events import IncidentEvent, event_of
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.local.atomic_write import atomic_write
from nodeguard.local.backoff import backoff, jittered
from nodeguard.model.incident import Incident
from nodeguard.model.target import target_label

logger = logging.getLogger(__name__)

# Seconds for one request; before the first and the later attempts; between two writes of the spool.
_TIMEOUT = 10.0
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 300.0
_SAVE_INTERVAL = 0.5

# Statuses of an error that a later attempt may not have; other 4xx are final.
_TEMPORARY = frozenset({408, 425, 429})

FILE_NAME = "notifications.json"


class NotificationSender:
    """Sends the changes of incidents to all webhooks, at least once, and in order for each webhook.

    sent, failed: attempts by webhook; refused: notifications that the receiver will never accept. wall:
    returns the seconds since the epoch. Only the active aggregator adds notifications; each aggregator sends
    those that it has.
    """

    def __init__(self, settings: NotificationSettings, wall: Callable[[], float] = time) -> None:
        self.webhooks = settings.webhooks
        self.spool = NotificationSpool(webhook.name for webhook in settings.webhooks)
        self.sent, self.failed, self.refused = Counter[str](), Counter[str](), Counter[str]()
        self._wall = wall
        self._subscriptions = {
            webhook.name: Subscription(webhook.min_health) for webhook in settings.webhooks
        }
        self._is_restored = False
        # Open incidents on nodes under maintenance: their Nodes' uids by name.
        self._quiet: dict[str, str] = {}
        self._changed = {webhook.name: asyncio.Event() for webhook in settings.webhooks}
        self._file = settings.spool_directory / FILE_NAME if settings.spool_directory else None
        self._saved = 0

    def plan_made(self, planner: Planner, plan: Plan, *, acts: bool) -> None:
        """Add the notifications of changed incidents. acts: whether the plan is applied here."""
        changed = {incident.name: incident for incident in plan.incidents}
        if not self._is_restored:
            self._is_restored = True
            # An incident that this plan changes was open before, or this plan opens it.
            recorded = (item for item in planner.all_incidents() if item.is_open != (item.name in changed))
            before = [item for item in recorded if not item.parent and not _is_quiet(planner, item)]
            for subscription in self._subscriptions.values():
                subscription.restore(before)
        for name, uid in self._quiet.items():
            incident = planner.incidents.get(uid, {}).get(name)
            if incident is not None:
                changed.setdefault(name, incident)
        self._quiet.clear()
        events = {event.incident: event for event in plan.events}
        for incident in changed.values():
            is_quiet = _is_quiet(planner, incident)
            if is_quiet and incident.is_open:
                self._quiet[incident.name] = incident.uid
            event = events.get(incident.name)
            for name, subscription in self._subscriptions.items():
                change = subscription.change(incident, is_news=event is not None, is_quiet=is_quiet)
                if change is not None and acts:
                    message = _message(incident, event)
                    self.add(name, notification_of(incident, change, message, self._wall()))

    def add(self, webhook: str, notification: Notification) -> None:
        """Add a notification for the webhook of a name."""
        self.spool.put(webhook, notification)
        self._changed[webhook].set()

    async def run(self) -> None:
        """Send until cancelled."""
        if self._file is not None:
            await self._restore(self._file)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as tasks:
            for webhook in self.webhooks:
                tasks.create_task(self._serve(webhook, session))
            if self._file is not None:
                tasks.create_task(self._save_changes(self._file))

    async def _serve(self, webhook: Webhook, session: aiohttp.ClientSession) -> None:
        failures = 0
        while True:
            notification = self.spool.first(webhook.name)
            if notification is None:
                self._changed[webhook.name].clear()
                await self._changed[webhook.name].wait()
                continue
            problem, is_final = await self._send(webhook, notification, session)
            if not problem:
                failures = 0
                self.sent[webhook.name] += 1
                self.spool.remove(webhook.name, notification)
                continue
            fields = {"webhook": webhook.name, "incident": notification.incident, "error": problem}
            if is_final:
                self.refused[webhook.name] += 1
                self.spool.remove(webhook.name, notification)
                logger.error("the receiver refuses a notification, it is not sent again", extra=fields)
                continue
            if not failures:
                logger.warning("cannot send a notification, it is sent again", extra=fields)
            self.failed[webhook.name] += 1
            wait = jittered(backoff(failures, _FIRST_RETRY, _LONGEST_RETRY), random.random())  # noqa: S311 - jitter
            failures += 1
            await asyncio.sleep(wait)

    async def _send(
        self, webhook: Webhook, notification: Notification, session: aiohttp.ClientSession
    ) -> tuple[str, bool]:
        """Send a notification. Returns the problem, empty for none, and whether every attempt would have it.

        The problem never has the address, which may be a secret.
        """
        body = body_of(webhook, notification)
        headers = signed_headers(webhook, notification, body, self._wall())
        try:
            async with session.post(
                webhook.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
        except TimeoutError:
            return f"no response within {_TIMEOUT:g} s", False
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__, False
        if 200 <= status < 300:
            return "", False
        return f"HTTP status {status}", 300 <= status < 500 and status not in _TEMPORARY

    async def _restore(self, path: Path) -> None:
        """Restore the spool of an earlier start. A file that cannot be used is renamed."""
        try:
            content = await asyncio.to_thread(_read, path)
            self.spool.restore(content)
        except FileNotFoundError:
            return
        except (OSError, SpoolError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            remedy = f"it is renamed to {path.name}.damaged; its notifications are not sent"
            logger.error(  # noqa: TRY400 - the reason is a field
                "cannot use the spool of notifications",
                extra={"file": str(path), "error": reason, "remedy": remedy},
            )
            await asyncio.to_thread(_set_aside, path)

    async def _save_changes(self, path: Path) -> None:
        """Write the spool after each change, so that a restart sends what is pending."""
        problem = ""
        while True:
            if self.spool.revision != self._saved:
                revision, content = self.spool.revision, self.spool.encode()
                try:
                    await asyncio.to_thread(atomic_write, str(path), [content])
                    self._saved, problem = revision, ""
                except OSError as error:
                    if not problem:
                        fields = {"file": str(path), "error": error.strerror}
                        logger.error("cannot write the spool, a restart loses notifications", extra=fields)  # noqa: TRY400
                    problem = str(error)
            await asyncio.sleep(_SAVE_INTERVAL)


def _is_quiet(planner: Planner, incident: Incident) -> bool:
    """Return whether the node of an incident is under maintenance: its faults are expected."""
    placement = planner.state.placements.get(incident.uid)
    return placement is not None and bool(placement.maintenance)


def _message(incident: Incident, event: IncidentEvent | None) -> str:
    """Return a change of an incident as a sentence. event: that of the change, if it has one."""
    if incident.parent:
        return f"{incident.cause} on {target_label(incident.target)} is part of incident {incident.parent}"
    event = event or event_of(None, incident)
    return event.message if event is not None else incident.message


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(FILE_LIMIT + 1)
    if len(content) > FILE_LIMIT:
        raise SpoolError(f"it has more than {FILE_LIMIT >> 20} MiB")
    return content


def _set_aside(path: Path) -> None:
    try:
        path.replace(f"{path}.damaged")
    except OSError:
        return
