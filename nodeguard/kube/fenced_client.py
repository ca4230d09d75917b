"""API client with a fence: requests need the lease, and end once a later leader has written."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nodeguard.kube.client import MAX_RESPONSE_BYTES, MERGE_PATCH, ApiClient, Query
from nodeguard.kube.node_patch import written_epoch
from nodeguard.model.mark import EPOCH_ANNOTATION

logger = logging.getLogger(__name__)

JSON = "application/json"

# Seconds for one request, if the lease is held for longer.
REQUEST_TIMEOUT = 5.0

# A request needs the lease for at least so many more seconds.
MIN_SECONDS_LEFT = 0.05


class NotPermittedError(Exception):
    """No write is allowed now: the lease is not held, or an operator paused nodeguard."""


class FencedError(Exception):
    """A leader with a later epoch has written: this process must not write any more. Names the object."""


class FencedClient:
    """Reads and writes under one epoch of the lease; a new epoch needs a new client.

    may_write: whether the lease is held and nothing is paused, asked before each write. seconds_left: for
    which the lease is held at least; no request gets more time. renewals: how often the lease was renewed.
    foreign_epoch: the later epoch that ended the writes under this one; 0 before.
    """

    def __init__(
        self,
        api: ApiClient,
        epoch: int,
        *,
        may_write: Callable[[], bool],
        seconds_left: Callable[[], float],
        renewals: Callable[[], int],
    ) -> None:
        self._api = api
        self.epoch = epoch
        self.foreign_epoch = 0
        self._may_write = may_write
        self._seconds_left = seconds_left
        self._renewals = renewals
        # The number of renewals when a Node first had a later epoch; None before.
        self._questioned: int | None = None

    @property
    def is_fenced(self) -> bool:
        """Whether writes have ended under this epoch."""
        return self.foreign_epoch > 0

    def can_write(self) -> bool:
        """Return whether a write may begin now."""
        is_questioned = self._questioned == self._renewals()
        is_held = self._seconds_left() > MIN_SECONDS_LEFT and not is_questioned
        return is_held and not self.is_fenced and self._may_write()

    def check_epoch(self, name: str, annotations: dict[str, str]) -> None:
        """Verify that no later epoch has written an object. Raises FencedError, and ends all writes.

        name: of the object, for the message.
        """
        epoch = written_epoch(annotations)
        if epoch <= self.epoch:
            return
        if not self.is_fenced:
            self.foreign_epoch = epoch
            logger.warning(
                "a later leader has written an object, writes end",
                extra={
                    "object": name,
                    "epoch": epoch,
                    "own_epoch": self.epoch,
                    "remedy": f"if no other aggregator runs, remove its annotation {EPOCH_ANNOTATION}",
                },
            )
        raise FencedError(f"{name} was written in epoch {epoch} of the lease, later than {self.epoch}")

    def check_node_epoch(self, name: str, annotations: dict[str, str]) -> None:
        """Verify that no later leader has written a Node. Its kubelet can write any epoch, so the lease
        decides: all writes wait until it is renewed, once. Raises NotPermittedError until then.
        """
        epoch = written_epoch(annotations)
        if epoch <= self.epoch:
            return
        if self._questioned is None:
            self._questioned = self._renewals()
            fields = {"object": name, "epoch": epoch, "own_epoch": self.epoch}
            logger.warning(
                "a later leader has written a Node, writes wait until the lease is renewed", extra=fields
            )
        if self._questioned == self._renewals():
            raise NotPermittedError

    async def read(self, path: str, query: Query | None = None, max_bytes: int = MAX_RESPONSE_BYTES) -> bytes:
        """Return the object or the list at a path. Raises ApiError, NotPermittedError."""
        return await self._api.request("GET", path, query=query, timeout=self._timeout(), max_bytes=max_bytes)

    async def write(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = MERGE_PATCH,
        query: Query | None = None,
    ) -> bytes:
        """Send a request that changes an object. Raises ApiError, NotPermittedError."""
        return await self._api.request(
            method, path, query=query, body=body, content_type=content_type, timeout=self._timeout()
        )

    def _timeout(self) -> float:
        if not self.can_write():
            raise NotPermittedError
        return min(REQUEST_TIMEOUT, self._seconds_left())
