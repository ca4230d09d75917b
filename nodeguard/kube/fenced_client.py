"""Requests to the API that are made for as long as the lease allows them."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.node_patch import written_epoch
from nodeguard.model.mark import EPOCH_ANNOTATION

JSON = "application/json"

# Seconds for one request, where the lease has more.
REQUEST_TIMEOUT = 5.0

# Less of a lease is too little to begin a request with, in seconds.
MIN_SECONDS_LEFT = 0.05


class NotPermittedError(Exception):
    """Nothing may be written now: the lease is not held, or people said to pause."""


class FencedError(Exception):
    """Somebody with a later lease has written: nothing may be written any more. Says where it was seen."""


class FencedClient:
    """The right to write, of one term of the lease; a new term needs a new one.

    epoch: of the term. may_write: whether the lease is held and nothing pauses, asked before each write.
    left: seconds for which the lease is held at least; no request is given more. fenced: is told, once, why
    nothing is written under this term any more. later: the epoch that somebody else wrote under then; 0
    before.
    """

    def __init__(
        self,
        api: ApiClient,
        epoch: int,
        *,
        may_write: Callable[[], bool],
        seconds_left: Callable[[], float],
        on_fenced: Callable[[str], None],
    ) -> None:
        self._api = api
        self.epoch = epoch
        self.foreign_epoch = 0
        self._may_write = may_write
        self._left = seconds_left
        self._fenced = on_fenced

    @property
    def is_fenced(self) -> bool:
        """Whether nothing is written under this term any more."""
        return self.foreign_epoch > 0

    def can_write(self) -> bool:
        """Whether a write may begin now."""
        return not self.is_fenced and self._left() > MIN_SECONDS_LEFT and self._may_write()

    def check_epoch(self, what: str, annotations: dict[str, str]) -> None:
        """See that nobody of a later term has written an object. Raises FencedError, and ends this term.

        what: its name, for people.
        """
        theirs = written_epoch(annotations)
        if theirs <= self.epoch:
            return
        why = (
            f"{what} was written under epoch {theirs} of the lease, and this aggregator's is {self.epoch}:"
            " another one leads, and this one writes no more. If none does, remove the annotation"
            f" {EPOCH_ANNOTATION} from it"
        )
        if not self.is_fenced:
            self.foreign_epoch = theirs
            self._fenced(why)
        raise FencedError(why)

    async def read(self, path: str) -> bytes:
        """The object at a path. Raises ApiError, NotPermittedError."""
        return await self._api.request("GET", path, timeout=self._within())

    async def write(
        self, method: str, path: str, body: object = None, content_type: str = MERGE_PATCH
    ) -> bytes:
        """Change something. Raises ApiError, NotPermittedError."""
        return await self._api.request(
            method, path, body=body, content_type=content_type, timeout=self._within()
        )

    def _within(self) -> float:
        if not self.can_write():
            raise NotPermittedError
        return min(REQUEST_TIMEOUT, self._left())


def affects_all_requests(error: ApiError) -> bool:
    """Whether an error says that the server takes no requests, rather than not this one."""
    return (error.status == 0 and error.reason != "TooLarge") or error.status in {429, 503}
