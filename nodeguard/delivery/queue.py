"""The queue of one webhook: order by key, retries, expiry and bound. Pure: the caller passes the time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.local.backoff import backoff, jittered

# Seconds before the first and the later attempts. After a repair of the receiver a page waits at most the
# longest; one request a minute is no load for a receiver that is down.
FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0

# Seconds for which a receiver may delay the next attempt by Retry-After.
_LONGEST_PAUSE = 3600.0

# Messages that wait for one webhook: those of a bad day. One has less than 6 KiB.
MAX_PENDING = 1000


class Message(Struct, frozen=True):
    """A message to a webhook.

    key: messages with the same key are sent in the order in which they were added. kind: the owner's word,
    for its choice of what to drop. added_at, expires_at: seconds since the epoch; None for no expiry.
    """

    id: str
    key: str
    payload: bytes
    added_at: float
    kind: str = ""
    expires_at: float | None = None


# Returns the messages to drop, at least one, from those that wait and are not in transit, oldest first.
DropChoice = Callable[[Sequence[Message]], Collection[Message]]


def oldest(waiting: Sequence[Message]) -> Collection[Message]:
    """Choose the oldest message to drop."""
    return waiting[:1]


class _Retry(Struct, frozen=True):
    """failures: consecutive ones of a key. due: the time of its next attempt, of a monotonic clock."""

    failures: int = 0
    due: float = float("-inf")


class MessageQueue:
    """The waiting messages of one webhook, oldest first. All times are of a monotonic clock, except expiry.

    A failed attempt delays its key, so that one message that the receiver does not process delays no other.
    It also delays all others, the more the more keys have failed since the last success: then the receiver is
    down. After its repair all keys are due. revision: increases with each change of the messages.
    """

    def __init__(self, drop_choice: DropChoice = oldest) -> None:
        self.revision = 0
        self._drop_choice = drop_choice
        self._waiting: list[Message] = []
        self._in_transit: Message | None = None
        self._retries: dict[str, _Retry] = {}
        self._failed_keys: set[str] = set()
        self._resumes_at = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> tuple[Message, ...]:
        """The messages that were not accepted yet, oldest first."""
        return tuple(self._waiting)

    @property
    def in_transit(self) -> Message | None:
        """The message that is being sent, also if it was discarded meanwhile."""
        return self._in_transit

    def restore(self, messages: Sequence[Message]) -> None:
        """Put the messages of an earlier start before the others."""
        self._waiting[:0] = messages[-MAX_PENDING:]

    def put(self, message: Message) -> Collection[Message]:
        """Add a message. Returns the messages that are dropped because too many wait."""
        self._waiting.append(message)
        self.revision += 1
        if len(self._waiting) <= MAX_PENDING:
            return ()
        dropped = self._drop_choice([item for item in self._waiting if item is not self._in_transit])
        self._remove({item.id for item in dropped})
        return dropped

    def renew(self, key: str, expires_at: float) -> None:
        """Set the time at which the messages of a key that can expire do so."""
        self._waiting = [
            replace(item, expires_at=expires_at) if item.key == key and item.expires_at is not None else item
            for item in self._waiting
        ]
        self.revision += 1

    def discard(self, keys: Collection[str]) -> Collection[Message]:
        """Remove and return the messages of keys."""
        dropped = [item for item in self._waiting if item.key in keys]
        self._remove({item.id for item in dropped})
        return dropped

    def expire(self, wall: float) -> Collection[Message]:
        """Remove and return the messages that have expired. wall: seconds since the epoch."""
        dropped = [
            item
            for item in self._waiting
            if item.expires_at is not None and wall > item.expires_at and item is not self._in_transit
        ]
        self._remove({item.id for item in dropped})
        return dropped

    def next(self, now: float) -> tuple[Message | None, float]:
        """Return the message to send now; or None, and the seconds until one may be due. The message is in
        transit until the result of its attempt.
        """
        first_of_key: dict[str, Message] = {}
        for item in self._waiting:
            first_of_key.setdefault(item.key, item)
        if not first_of_key:
            return None, float("inf")
        key = min(first_of_key, key=lambda key: self._retry(key).due)
        wait = max(self._resumes_at, self._retry(key).due) - now
        if wait > 0:
            return None, wait
        self._in_transit = first_of_key[key]
        return self._in_transit, 0.0

    def accepted(self, message: Message) -> None:
        """Remove a message that the receiver has accepted."""
        was_down = len(self._failed_keys) > 1
        for key in self._failed_keys if was_down else ():
            self._retries.pop(key, None)
        self._failed_keys.clear()
        self._resumes_at = float("-inf")
        self.refused(message)

    def refused(self, message: Message) -> None:
        """Remove a message that the receiver never accepts."""
        self._in_transit = None
        self._remove({message.id})
        self._retries.pop(message.key, None)
        self._failed_keys.discard(message.key)

    def failed(self, message: Message, now: float, fraction: float, retry_after: float = 0.0) -> None:
        """Delay the next attempts. fraction: from 0 to 1, drawn at random. retry_after: seconds, of the
        receiver.
        """
        self._in_transit = None
        failures = self._retry(message.key).failures
        delay = jittered(backoff(failures, FIRST_RETRY, LONGEST_RETRY), fraction)
        self._retries[message.key] = _Retry(failures + 1, now + delay)
        self._failed_keys.add(message.key)
        pause = jittered(backoff(len(self._failed_keys) - 1, FIRST_RETRY, LONGEST_RETRY), fraction)
        self._resumes_at = now + max(pause, min(retry_after, _LONGEST_PAUSE))

    def _retry(self, key: str) -> _Retry:
        return self._retries.get(key, _Retry())

    def _remove(self, ids: Collection[str]) -> None:
        if not ids:
            return
        self._waiting = [item for item in self._waiting if item.id not in ids]
        self.revision += 1
        keys = {item.key for item in self._waiting}
        self._retries = {key: retry for key, retry in self._retries.items() if key in keys}
