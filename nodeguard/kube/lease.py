"""Leader election by a Lease: it decides which of several aggregators writes.

The plan loop starts each renewal, so an aggregator with a planner that hangs loses it. A holder stops before
another may begin, by monotonic clocks: the holder counts from before its renewal request, the others count
from after the response in which they saw that renewal.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from nodeguard.kube.client import MERGE_PATCH, version_number
from nodeguard.kube.errors import ApiError, single_line
from nodeguard.kube.lease_record import (
    LEASE_SECONDS,
    MAX_EPOCH,
    LeaseRecord,
    decode_lease,
    leader_term,
    written_spec,
)
from nodeguard.model.failure import UserError

logger = logging.getLogger(__name__)

# Seconds from the start of a renewal for which the lease is held. Writes of that time end, or are abandoned,
# within the rest of LEASE_SECONDS.
HOLD_SECONDS = 10.0

# Seconds between renewals, between reads of a lease that another holds, and from the start of an attempt to
# that of the next one if no response comes: the connection may be dead.
_RENEW_SECONDS = 3.0
_READ_SECONDS = 1.0
_ATTEMPT_SECONDS = 4.0

# Seconds for each request: a later response extends no hold. A slow API server costs no lease: client-go's
# controllers retry for 10 s too. And for each request at the end of the process, which has no time to wait.
_TIMEOUT = HOLD_SECONDS
_RELEASE_TIMEOUT = 2.0

# Attempts to take the lease from a holder, which renews it every few seconds.
_SEIZE_TRIES = 5

# The longest duration of a foreign holder that is respected, in seconds.
MAX_DURATION = 300

_NEVER = float("-inf")

# The version of a lease that was deleted; no other one is empty.
_DELETED = ""

_RESTORED = (
    "the cluster was restored to an earlier state, as from a backup of etcd: start the aggregator again, as "
    "Kubernetes does, to read it"
)


class RestoredError(UserError):
    """The cluster was restored to an earlier state. Later objects that this process has read do not exist,
    and their versions are used again: only a new process knows the cluster.
    """


class LeaseProblem(Struct, frozen=True):
    """The requests about the lease that fail. since: start of the first of them, in seconds of a monotonic
    clock. error: of the latest.
    """

    since: float
    error: ApiError


class LeaseApi(Protocol):
    """The part of ApiClient that a candidate uses."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        timeout: float = 5.0,
    ) -> bytes:
        """Send a request and return the body of the response. Raises ApiError."""


class Lease:
    """One candidate for a lease.

    name: of this process, for operators; `identity` is unique to it. Times are seconds of a monotonic clock.
    problem: None while the API server answers. vacant_since: since when this candidate has seen no holder;
    None while there is one. answered: start of the latest attempt that the API server has answered. epoch: of
    the lease when this candidate last won it. renewals: how often it took or renewed the lease. earlier_term:
    from when until when the holder had led at the first read, in seconds since the epoch by its clock; None
    if that is unknown.
    """

    def __init__(
        self,
        api: LeaseApi,
        namespace: str,
        lease: str,
        name: str,
        duration: int = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """duration: seconds without a renewal after which another candidate may take the lease; at most
        MAX_DURATION. clock: returns seconds, for the durations of requests.
        """
        self._api = api
        self._duration = duration
        self._clock = clock
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease = lease
        self.identity = f"{name}_{secrets.token_hex(4)}"
        self.problem: LeaseProblem | None = None
        self.vacant_since: float | None = None
        self.earlier_term: tuple[float, float] | None = None
        self.answered = _NEVER
        self._was_read = False
        self._record: LeaseRecord | None = None  # None: read it before the next write
        self._holder = ""  # identity of the holder when the lease was last read
        self._last_version = (_DELETED, 0.0)  # the lease's version, and when it was first seen
        self._other_until = _NEVER  # until when the lease belongs to another holder without a renewal
        self._due = _NEVER
        self._held_until = _NEVER
        self._min_epoch = 0
        self._latest_version = -1  # the highest version of the lease that was read or written
        self.epoch = self.renewals = 0

    def holder(self, now: float) -> str:
        """Return the name of the holder when the lease was last read or written; empty for none, and if the
        holder has not renewed it in time.
        """
        until = self._held_until if self._holder == self.identity else self._other_until
        if now >= until:
            return ""
        # Another kind of client may hold the lease, under any identity.
        return single_line(self._holder.rpartition("_")[0] or self._holder)

    def is_held(self, now: float) -> bool:
        """Return whether a write may begin now, which may take 5 s at most."""
        return now < self._held_until

    def seconds_left(self, now: float) -> float:
        """Return the seconds for which the lease is held without another renewal; 0 if it is not held."""
        return max(0.0, self._held_until - now)

    def raise_epoch_above(self, epoch: int) -> None:
        """Make the epoch higher than one that an object carries: a deleted lease starts again at 1.

        An epoch that no lease can have is ignored.
        """
        if self._min_epoch < epoch < MAX_EPOCH:
            self._min_epoch = epoch
            if epoch > self.epoch:
                self._due = _NEVER

    def is_due(self, now: float) -> bool:
        """Return whether `renew` sends a request now."""
        return now >= self._due

    async def renew(self, now: float, *, wanted: bool = True) -> bool:
        """Take or renew the lease if that is due, and return whether it is held.

        now: before the plan. wanted: False releases the lease, and only reads who holds it. It may take 20 s
        if the API server does not respond. Another call meanwhile is a second attempt: each changes only the
        version of the lease that it has read. Raises RestoredError.
        """
        if not wanted and self._held_until != _NEVER:
            self._lost("this aggregator releases it")
            self._due = now
        if self.is_due(now):
            request = _Request(now, self._clock)
            self._due = now + _ATTEMPT_SECONDS
            try:
                await self._step(request, wanted=wanted)
                self._recovered(now)
            except ApiError as error:
                self._due = now + _READ_SECONDS
                # On a conflict another candidate was first: the next step reads its lease.
                if error.status == 409:
                    self._recovered(now)
                elif now >= self.answered:
                    self._failed(error, now)
        return self.is_held(now)

    async def seize(self) -> bool:
        """Take the lease, also from another holder. Returns whether there was one.

        That holder may still write for LEASE_SECONDS. The lease lasts for its duration, or until `release`.
        Raises ApiError.
        """
        conflicts = 0
        while True:
            try:
                return await self._overwrite()
            except ApiError as error:
                # The holder renewed the lease meanwhile.
                conflicts += 1
                if error.status != 409 or conflicts == _SEIZE_TRIES:
                    raise

    async def release(self) -> None:
        """Release the lease if it is held or seized: another candidate may begin at once. Write nothing after
        this.
        """
        is_holder, self._held_until = self._holder == self.identity, _NEVER
        try:
            record = (self._record or await self._read(_RELEASE_TIMEOUT)) if is_holder else None
            if record is not None and record.spec.holder == self.identity:
                await self._write(record, "", record.spec.transitions, timeout=_RELEASE_TIMEOUT)
        except ApiError as error:
            self._failed(error, self._clock())
        self._record = None

    async def _overwrite(self) -> bool:
        record, self._record = await self._read(), None
        if record is None:
            self._record = await self._create()
            return False
        before = record.spec.holder
        epoch = max(record.spec.transitions, self._min_epoch) + 1
        self._record = await self._write(record, self.identity, epoch, is_new=True)
        return before not in {"", self.identity}

    async def _step(self, request: _Request, *, wanted: bool) -> None:
        # A second attempt meanwhile reads the lease: this one may change it.
        record, self._record = self._record, None
        record = record or await self._read()
        started_at = request.now
        if record is None:
            # Another candidate may have taken it after this holder could not renew it.
            was_cut_off = (
                self._held_until != _NEVER and started_at >= self._held_until - HOLD_SECONDS + LEASE_SECONDS
            )
            had_other_holder = self._other_until != _NEVER and self._last_version[0] != _DELETED
            self._lost("it was deleted")
            self._vacant(started_at)
            if was_cut_off or had_other_holder:
                # Its holder may have renewed it just before. A longer hold ends with its deletion.
                self._last_version = (_DELETED, started_at)
                self._other_until = started_at + LEASE_SECONDS
            if wanted and started_at >= self._other_until:
                self._won(await self._create(), started_at)
            return
        spec = record.spec
        is_own = spec.holder == self.identity
        if is_own and not wanted:
            await self._write(record, "", spec.transitions)
            self._vacant(request.now)
        elif (is_own or self._is_free(record, started_at)) and wanted:
            # Each holder has its own epoch. It takes a new one, too, if an object carries a higher one.
            is_new = not is_own or spec.transitions < self._min_epoch
            epoch = max(spec.transitions, self._min_epoch) + 1 if is_new else spec.transitions
            self._won(await self._write(record, self.identity, epoch, is_new=is_new), started_at)
        else:
            self._due = started_at + _READ_SECONDS

    def _is_free(self, record: LeaseRecord, now: float) -> bool:
        """Return whether the lease of another holder, or of none, may be taken. now: after its read."""
        spec, version = record.spec, record.version
        self._lost(f"{single_line(spec.holder)} holds it" if spec.holder else "it has no holder")
        if version != self._last_version[0]:
            self._last_version = (version, now)
        duration = min(max(spec.duration, 1), MAX_DURATION)
        self._other_until = self._last_version[1] + duration if spec.holder else _NEVER
        is_free = not spec.holder or now >= self._other_until
        if is_free:
            self._vacant(now)
        else:
            self.vacant_since = None
        return is_free

    def _vacant(self, now: float) -> None:
        """Record that the lease has no holder, and read it again soon."""
        if self.vacant_since is None:
            self.vacant_since = now
        self._due = now + _READ_SECONDS

    def _won(self, record: LeaseRecord, started_at: float) -> None:
        """Record that the lease is held. started_at: of the request that took or renewed it."""
        if self._held_until == _NEVER or self.epoch != record.spec.transitions:
            logger.info("became leader", extra={"epoch": record.spec.transitions})
        self._record, self.epoch, self.vacant_since = record, record.spec.transitions, None
        self._other_until = _NEVER
        self._min_epoch = max(self._min_epoch, self.epoch)
        self.renewals += 1
        # The response to an earlier attempt may come after that to a later one.
        self._held_until = max(self._held_until, started_at + HOLD_SECONDS)
        self._due = self._held_until - HOLD_SECONDS + _RENEW_SECONDS

    def _lost(self, reason: str) -> None:
        self._record = None
        if self._held_until != _NEVER:
            self._held_until = _NEVER
            logger.info("lost leadership", extra={"epoch": self.epoch, "reason": reason})

    def _failed(self, error: ApiError, since: float) -> None:
        self.problem = LeaseProblem(self.problem.since if self.problem is not None else since, error)
        logger.warning("cannot read or renew the Lease", extra={"error": error.message})

    def _recovered(self, since: float) -> None:
        self.answered = max(self.answered, since)
        if self.problem is not None:
            self.problem = None
            logger.info("the Lease can be renewed again")

    async def _read(self, timeout: float = _TIMEOUT) -> LeaseRecord | None:
        # A read returns the latest version, at least that of a response before the request.
        earlier_version = self._latest_version
        try:
            record = decode_lease(await self._api.request("GET", self._path, timeout=timeout))
        except ApiError as error:
            if error.status == 404:
                self._holder = ""
                return None
            raise
        if version_number(record.version) < earlier_version:
            self._latest_version = -1  # `release` reads it, too
            raise RestoredError(_RESTORED)
        self._note_version(record)
        self._holder = record.spec.holder
        if not self._was_read:
            self._was_read = True
            self.earlier_term = leader_term(record.spec)
        # So that the epoch continues if the lease is deleted.
        self._min_epoch = max(self._min_epoch, record.spec.transitions)
        return record

    async def _create(self) -> LeaseRecord:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._lease},
            "spec": written_spec(self.identity, self._min_epoch + 1, self._duration, is_new=True),
        }
        self._holder = self.identity  # also if no response comes: `release` reads it
        response = await self._api.request("POST", self._collection, body=body, timeout=_TIMEOUT)
        return self._decode_written(response)

    async def _write(
        self,
        record: LeaseRecord,
        holder: str,
        epoch: int,
        *,
        is_new: bool = False,
        timeout: float = _TIMEOUT,
    ) -> LeaseRecord:
        body = {
            "metadata": {"resourceVersion": record.version},
            "spec": written_spec(holder, epoch, self._duration, is_new=is_new),
        }
        self._holder = self.identity  # also if no response comes: `release` reads it
        response = await self._api.request(
            "PATCH", self._path, body=body, content_type=MERGE_PATCH, timeout=timeout
        )
        return self._decode_written(response)

    def _decode_written(self, response: bytes) -> LeaseRecord:
        record = decode_lease(response)
        self._note_version(record)
        self._holder = record.spec.holder
        return record

    def _note_version(self, record: LeaseRecord) -> None:
        self._latest_version = max(self._latest_version, version_number(record.version))

    @property
    def _path(self) -> str:
        return f"{self._collection}/{self._lease}"


class _Request:
    """Requests that began at a time. now: that time, and the seconds since then."""

    def __init__(self, began: float, clock: Callable[[], float]) -> None:
        self._began, self._clock, self._read_at = began, clock, clock()

    @property
    def now(self) -> float:
        return self._began + self._clock() - self._read_at
