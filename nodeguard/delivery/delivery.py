"""The delivery: one task for each webhook, which sends its queue until the receiver has accepted all of it.

It knows nothing of what it sends. Who owns the messages also stores them: `waiting` and `restore` are its
state, to be written together with the owner's own, so that both are of the same time after a kill.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from time import time
from typing import Literal

import aiohttp
import msgspec

from nodeguard.delivery.attempt import TIMEOUT, AttemptResult, Destination, send
from nodeguard.delivery.queue import MAX_PENDING, DropChoice, Message, MessageQueue, oldest
from nodeguard.local.client_tls import client_context

logger = logging.getLogger(__name__)

# Why a message is dropped: it is refused, for its size or another reason, has expired, or too many wait.
DropReason = Literal["refused", "too large", "expired", "full"]

# Receive each dropped and each accepted message, with the name of its webhook. The first returns whether it
# sends the content of a refused message in smaller ones: then that is no refusal.
DropListener = Callable[[str, Message, DropReason], bool | None]
AcceptListener = Callable[[str, Message], None]


class Delivery:
    """Sends messages to webhooks, at least once, and in order for each key.

    sent, failed: attempts by webhook. refused: messages that the receiver never accepts. dropped: messages
    that were not sent for another reason. problems: of the latest attempt, by webhook; none where it
    succeeded. wall: returns the seconds since the epoch.
    """

    def __init__(
        self,
        destinations: Iterable[Destination],
        *,
        dropped: DropListener,
        accepted: AcceptListener = lambda _webhook, _message: None,
        drop_choice: DropChoice = oldest,
        wall: Callable[[], float] = time,
    ) -> None:
        self.sent, self.failed, self.refused = Counter[str](), Counter[str](), Counter[str]()
        self.dropped = Counter[str]()
        self.problems: dict[str, str] = {}
        self._destinations = {destination.name: destination for destination in destinations}
        self._queues = {name: MessageQueue(drop_choice) for name in self._destinations}
        self._changed = {name: asyncio.Event() for name in self._destinations}
        # Webhooks of which messages were dropped since the receiver accepted one.
        self._dropping: set[str] = set()
        # Since when a webhook has not responded to what was sent, in seconds since the epoch.
        self._failing_since: dict[str, float] = {}
        self._drop_listener = dropped
        self._accept_listener = accepted
        self._wall = wall

    @property
    def names(self) -> Collection[str]:
        """The names of the webhooks."""
        return self._destinations.keys()

    @property
    def revision(self) -> int:
        """A number that increases with each change of the waiting messages."""
        return sum(queue.revision for queue in self._queues.values())

    def waiting(self, name: str) -> tuple[Message, ...]:
        """Return the messages of a webhook that were not accepted yet, oldest first."""
        return self._queues[name].waiting

    def in_transit(self, name: str) -> Message | None:
        """Return the message of a webhook that is being sent."""
        return self._queues[name].in_transit

    def restore(self, waiting: Mapping[str, Sequence[Message]]) -> None:
        """Restore the messages of an earlier start, without those of removed webhooks."""
        for name in waiting.keys() & self._queues.keys():
            self._queues[name].restore(waiting[name])

    def room(self) -> dict[str, int]:
        """Return for how many more messages of each webhook there is room."""
        return {name: max(0, MAX_PENDING - len(queue)) for name, queue in self._queues.items()}

    def oldest(self, name: str) -> float | None:
        """Return since when the oldest message of a webhook waits, in seconds since the epoch; None for none.

        A message counts from the first failure since the webhook responded: its owner may replace it again
        and again meanwhile.
        """
        added = min((item.added_at for item in self._queues[name].waiting), default=None)
        return None if added is None else min(added, self._failing_since.get(name, added))

    def failing_since(self, name: str) -> float | None:
        """Return since when a webhook has responded to nothing while a message waits, in seconds since the
        epoch; None if it responds, or if none waits.
        """
        return self._failing_since.get(name) if self._queues[name].waiting else None

    def put(self, name: str, message: Message) -> None:
        """Add a message for the webhook of a name."""
        self._drop(name, self._queues[name].put(message), "full")
        self._changed[name].set()

    def renew(self, name: str, key: str, expires_at: float) -> None:
        """Set the time at which the messages of a key that can expire do so, in seconds since the epoch."""
        self._queues[name].renew(key, expires_at)

    def discard(self, name: str, keys: Collection[str]) -> int:
        """Remove messages that are no longer needed. Returns their number: they do not count as dropped."""
        return len(self._queues[name].discard(keys))

    async def run(self) -> None:
        """Send until cancelled."""
        destinations = self._destinations.values()
        trusted = {ca: client_context(authorities=ca or None) for ca in {item.ca for item in destinations}}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as tasks:
            for destination in destinations:
                tasks.create_task(self._serve(destination, session, trusted[destination.ca]))

    async def _serve(
        self, destination: Destination, session: aiohttp.ClientSession, trusted: ssl.SSLContext
    ) -> None:
        name, queue = destination.name, self._queues[destination.name]
        clock = asyncio.get_running_loop().time
        while True:
            self._drop(name, queue.expire(self._wall()), "expired")
            self._changed[name].clear()
            message, wait = queue.next(clock())
            if message is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed[name].wait(), None if wait == float("inf") else wait)
                continue
            result = await self._attempt(destination, message, session, trusted)
            if not result.problem or result.is_refused:
                self._failing_since.pop(name, None)
            if not result.problem:
                queue.accepted(message)
                self.sent[name] += 1
                self.problems.pop(name, None)
                self._dropping.discard(name)
                self._accept_listener(name, message)
                continue
            fields = {"webhook": name, "key": message.key, "error": result.problem}
            if result.is_refused:
                self.problems[name] = result.problem
                queue.refused(message)
                if not self._drop_listener(name, message, "too large" if result.is_too_large else "refused"):
                    self.refused[name] += 1
                    logger.error("the receiver of a webhook refuses a message", extra=fields)
                continue
            if name not in self._failing_since:
                logger.warning("cannot send to a webhook, it is tried again", extra=fields)
            # The clock may have gone back: the webhook must not seem to fail since a time to come.
            now = self._wall()
            self._failing_since[name] = min(self._failing_since.get(name, now), now)
            self.problems[name] = result.problem
            self.failed[name] += 1
            queue.failed(message, clock(), random.random(), result.retry_after)  # noqa: S311 - jitter

    async def _attempt(
        self,
        destination: Destination,
        message: Message,
        session: aiohttp.ClientSession,
        trusted: ssl.SSLContext,
    ) -> AttemptResult:
        try:
            body = destination.render(message.payload)
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError) as error:
            return AttemptResult(f"cannot render the message: {error}", is_refused=True)
        return await send(destination, session, trusted, message_id=message.id, body=body, wall=self._wall())

    def _drop(self, name: str, messages: Collection[Message], reason: DropReason) -> None:
        """Count dropped messages, log the first since the receiver accepted one, and notify the owner."""
        if not messages:
            return
        self.dropped[name] += len(messages)
        if name not in self._dropping:
            self._dropping.add(name)
            remedy = "repair the receiver or its address"
            fields = {"webhook": name, "waiting": len(self._queues[name]), "reason": reason, "remedy": remedy}
            logger.error("messages for a webhook are dropped", extra=fields)
        for message in messages:
            self._drop_listener(name, message, reason)
