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
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.local.atomic_write import atomic_write
from nodeguard.local.backoff import backoff, jittered

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
        self._open: set[str] | None = None
        self._changed = {webhook.name: asyncio.Event() for webhook in settings.webhooks}
        self._file = settings.spool_directory / FILE_NAME if settings.spool_directory else None
        self._saved = 0

    def plan_made(self, planner: Planner, plan: Plan, *, acts: bool) -> None:
        """Add a notification for each Event of an incident. acts: whether the plan is applied here."""
        names = {event.incident for event in plan.events}
        if self._open is None:
            recorded = (incident.name for incident in planner.all_incidents() if incident.is_open)
            self._open = {name for name in recorded if name not in names}
        for event in plan.events:
            incident = planner.incident(event.incident)
            if incident is None:
                continue
            is_new = incident.name not in self._open
            if incident.is_open:
                self._open.add(incident.name)
            else:
                self._open.discard(incident.name)
            if acts:
                self.add(notification_of(event, incident, is_new=is_new, now=self._wall()))

    def add(self, notification: Notification) -> None:
        """Add a notification for each webhook that wants incidents of its health."""
        for webhook in self.webhooks:
            if notification.health.rank >= webhook.min_health.rank:
                self.spool.put(webhook.name, notification)
                self._changed[webhook.name].set()

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
