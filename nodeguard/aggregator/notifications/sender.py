"""The sender of notifications: one task for each webhook, which retries until the receiver accepts."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import time

import aiohttp

from nodeguard.aggregator.notifications.formats import (
    Notification,
    body_of,
    signed_headers,
)
from nodeguard.aggregator.notifications.settings import NotificationSettings, Webhook
from nodeguard.aggregator.notifications.spool import FILE_LIMIT, NotificationSpool, SpoolError
from nodeguard.aggregator.notifications.subscriptions import Subscriptions
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.text.phrases import count_noun
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
        self._subscriptions = Subscriptions(settings.webhooks)
        self._is_read = False
        # Problem of the latest attempt, by webhook; none where it succeeded.
        self._problems: dict[str, str] = {}
        # Webhooks of which notifications were dropped since the receiver accepted one.
        self._dropping: set[str] = set()
        self._changed = {webhook.name: asyncio.Event() for webhook in settings.webhooks}
        self._file = settings.spool_directory / FILE_NAME if settings.spool_directory else None
        self._saved = 0, 0

    def plan_made(self, planner: Planner, plan: Plan, *, acts: bool, has_leader: bool) -> None:
        """Add the notifications of changed incidents. acts: whether the plan is applied here. has_leader:
        whether any aggregator leads.
        """
        for webhook, notification in self._subscriptions.plan_made(
            planner, plan, self._wall(), acts=acts, has_leader=has_leader, room=self.spool.room()
        ):
            self.add(webhook, notification)
        for item in self.webhooks:
            self.spool.drop_ended(item.name, self._subscriptions.unsent_ends(item.name))

    def add(self, webhook: str, notification: Notification) -> None:
        """Add a notification for the webhook of a name."""
        before = self.spool.dropped[webhook]
        dropped = self.spool.put(webhook, notification)
        if dropped is not None:
            self._subscriptions.notify_again(webhook, dropped)
        self._log_dropped(webhook, before)
        self._changed[webhook].set()

    def problem(self) -> str:
        """Return which webhooks do not accept notifications, and why; empty for none."""
        return "; ".join(
            f"webhook {name}: {problem}; {count_noun(self.spool.pending(name), 'notification')} pending, "
            f"{count_noun(self.spool.dropped[name], 'notification')} dropped"
            for name, problem in self._problems.items()
        )

    def _log_dropped(self, webhook: str, before: int) -> None:
        """Log that notifications are dropped, once until the receiver accepts one."""
        if self.spool.dropped[webhook] == before or webhook in self._dropping:
            return
        self._dropping.add(webhook)
        remedy = "repair the receiver or its address; nodeguard get incidents has the state"
        fields = {"webhook": webhook, "pending": self.spool.pending(webhook), "remedy": remedy}
        logger.error(
            "notifications are dropped: the spool is full, or they are older than a day", extra=fields
        )

    async def run(self) -> None:
        """Send until cancelled."""
        self.read_spool()
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        trusted = {
            ca: ssl.create_default_context(cadata=ca or None) for ca in {item.ca for item in self.webhooks}
        }
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as tasks:
            for webhook in self.webhooks:
                tasks.create_task(self._serve(webhook, session, trusted[webhook.ca]))
            if self._file is not None:
                tasks.create_task(self._save_changes(self._file))

    async def _serve(self, webhook: Webhook, session: aiohttp.ClientSession, trusted: ssl.SSLContext) -> None:
        failures = 0
        while True:
            dropped = self.spool.dropped[webhook.name]
            self.spool.drop_old(webhook.name, self._wall())
            self._log_dropped(webhook.name, dropped)
            notification = self.spool.first(webhook.name)
            if notification is None:
                self._changed[webhook.name].clear()
                await self._changed[webhook.name].wait()
                continue
            problem, is_final = await self._send(webhook, notification, session, trusted)
            if not problem:
                failures = 0
                self._problems.pop(webhook.name, None)
                self._dropping.discard(webhook.name)
                self.sent[webhook.name] += 1
                self.spool.remove(webhook.name, notification)
                continue
            self._problems[webhook.name] = problem
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
        self,
        webhook: Webhook,
        notification: Notification,
        session: aiohttp.ClientSession,
        trusted: ssl.SSLContext,
    ) -> tuple[str, bool]:
        """Send a notification. Returns the problem, empty for none, and whether every attempt would have it.

        trusted: the authorities of the receiver. The problem never has the address, which may be a secret.
        """
        body = body_of(webhook, notification)
        headers = signed_headers(webhook, notification, body, self._wall())
        try:
            async with session.post(
                webhook.url, data=body, headers=headers, allow_redirects=False, ssl=trusted
            ) as response:
                status = response.status
        except TimeoutError:
            return f"no response within {_TIMEOUT:g} s", False
        except aiohttp.ClientConnectorCertificateError:
            return (
                "the receiver's certificate is not trusted: set caFile to the CA certificate that signed it",
                False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"cannot send ({type(error).__name__}): check the url and the network", False
        if 200 <= status < 300:
            return "", False
        return f"HTTP status {status}", 300 <= status < 500 and status not in _TEMPORARY

    def read_spool(self) -> None:
        """Restore the spool of an earlier start, once: before the first plan, which needs the open incidents.

        A file that cannot be used is renamed.
        """
        path = self._file
        if path is None or self._is_read:
            return
        self._is_read = True
        try:
            states = self.spool.restore(_read(path))
        except FileNotFoundError:
            return
        except (OSError, SpoolError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            remedy = f"it is renamed to {path.name}.damaged; its notifications are not sent"
            logger.error(  # noqa: TRY400 - the reason is a field
                "cannot use the spool of notifications",
                extra={"file": str(path), "error": reason, "remedy": remedy},
            )
            _set_aside(path)
            return
        self._subscriptions.restore(states)

    async def _save_changes(self, path: Path) -> None:
        """Write the spool after each change, so that a restart sends what is pending."""
        problem = ""
        while True:
            revision = self.spool.revision, self._subscriptions.revision
            if revision != self._saved:
                content = self.spool.encode(self._subscriptions.states())
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
