"""The Lease that says which of several aggregators writes.

It is renewed from outside, by who has just planned: a planner that hangs loses it. Whoever holds it stops
before another may begin, by clocks that never jump: the holder counts from before it asked to renew, the
others from after they saw that it had.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.error_log import ErrorLog, Log
from nodeguard.kube.errors import ApiError, single_line

# Seconds without a renewal after which another may take it.
LEASE_SECONDS = 15

# Seconds after a renewal began for which it is held. What is written then is over, or given up, within what
# is left of DURATION.
HOLD_SECONDS = 10.0

# Seconds between renewals, between looks at one that another holds, and for each request.
_RENEW = 3.0
_LOOK = 1.0
_WITHIN = 2.0

# A lease whose holder asks for more is not waited for any longer, in seconds.
_LONGEST = 300

_NEVER = float("-inf")

# The API keeps the number of holders in 32 bits; there have to be some left.
_LAST_EPOCH = 2**30


class _Spec(Struct):
    holder: str = field(name="holderIdentity", default="")
    duration: int = field(name="leaseDurationSeconds", default=LEASE_SECONDS)
    transitions: int = field(name="leaseTransitions", default=0)


class _Meta(Struct):
    version: str = field(name="resourceVersion")


class LeaseRecord(Struct):
    """A Lease object, as far as it matters here."""

    metadata: _Meta
    spec: _Spec = field(default_factory=_Spec)


_DECODER = msgspec.json.Decoder(LeaseRecord)


class Lease:
    """One of those who want a lease.

    name: of this process, for people to read; `identity` is never that of another. tell: what is wrong, and
    who holds it. Times are seconds of a clock that never jumps.
    """

    def __init__(self, api: ApiClient, namespace: str, lease: str, name: str, tell: Log) -> None:
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease = lease
        self.identity = f"{name}_{secrets.token_hex(4)}"
        self._tell = tell
        self._trouble = ErrorLog("Lease", tell)
        self._known: LeaseRecord | None = None  # None: to be read before anything is written
        self._holder = ""  # whoever held it when it was last read, with the token of its identity
        self._seen = ("", 0.0)  # its version, and when that was first seen
        self._due = _NEVER
        self._until = _NEVER
        self._outgrown = 0
        self.epoch = 0

    @property
    def holder(self) -> str:
        """Return the name of who held it when it was last read or written; empty for nobody."""
        return self._holder.rpartition("_")[0]

    def is_held(self, now: float) -> bool:
        """Whether it may be written at this moment, with 5 s at most for the write."""
        return now < self._until

    def seconds_left(self, now: float) -> float:
        """Seconds for which it is held if it is never renewed again; 0 where it is not held."""
        return max(0.0, self._until - now)

    def raise_epoch_above(self, epoch: int) -> None:
        """Let the epoch be higher than one that was found written: a lease that was deleted begins anew.

        One that no lease can have is not outgrown.
        """
        if self._outgrown < epoch < _LAST_EPOCH:
            self._outgrown = epoch
            if epoch > self.epoch:
                self._due = _NEVER

    async def renew(self, now: float) -> bool:
        """Take it or keep it, where that is due; whether it is held.

        For after each plan, with the time before that. It may take 4 s where the API does not answer.
        """
        if now >= self._due:
            try:
                await self._step(now)
                self._trouble.recovered()
            except ApiError as error:
                self._known = None
                self._due = now + _LOOK
                # Another was quicker: what it wrote is read the next time.
                if error.status != 409:
                    self._trouble.failed(error)
        return self.is_held(now)

    async def release(self) -> None:
        """Give it back, where it is held: another may begin at once. Nothing may be written after."""
        held, self._until = self._until != _NEVER, _NEVER
        try:
            known = (self._known or await self._read()) if held else None
            if known is not None and known.spec.holder == self.identity:
                await self._write(known, "", known.spec.transitions)
        except ApiError as error:
            self._trouble.failed(error)
        self._known = None

    async def _step(self, now: float) -> None:
        known = self._known or await self._read()
        if known is None:
            self._won(await self._create(), now)
            return
        spec = known.spec
        if spec.holder != self.identity and not self._is_free(known, now):
            self._due = now + _LOOK
            return
        # Each holder has an epoch of its own; so has one who finds a later one written than the lease says.
        anew = spec.holder != self.identity or spec.transitions < self._outgrown
        epoch = max(spec.transitions, self._outgrown) + 1 if anew else spec.transitions
        self._won(await self._write(known, self.identity, epoch, anew=anew), now)

    def _is_free(self, known: LeaseRecord, now: float) -> bool:
        spec, version = known.spec, known.metadata.version
        self._lost(f"{single_line(spec.holder)} holds it" if spec.holder else "nobody holds it")
        if version != self._seen[0]:
            self._seen = (version, now)
        return not spec.holder or now >= self._seen[1] + min(max(spec.duration, 1), _LONGEST) + _WITHIN

    def _won(self, record: LeaseRecord, now: float) -> None:
        if self._until == _NEVER or self.epoch != record.spec.transitions:
            self._tell(f"Lease: this aggregator writes now, in epoch {record.spec.transitions}")
        self._known, self.epoch = record, record.spec.transitions
        self._until, self._due = now + HOLD_SECONDS, now + _RENEW

    def _lost(self, why: str) -> None:
        self._known = None
        if self._until != _NEVER:
            self._until = _NEVER
            self._tell(f"Lease: this aggregator writes no more: {why}")

    async def _read(self) -> LeaseRecord | None:
        try:
            record = _record(await self._api.request("GET", self._path, timeout=_WITHIN))
        except ApiError as error:
            if error.status == 404:
                self._holder = ""
                return None
            raise
        self._holder = record.spec.holder
        return record

    async def _create(self) -> LeaseRecord:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._lease},
            "spec": _spec(self.identity, self._outgrown + 1, anew=True),
        }
        return self._wrote(await self._api.request("POST", self._collection, body=body, timeout=_WITHIN))

    async def _write(self, known: LeaseRecord, holder: str, epoch: int, *, anew: bool = False) -> LeaseRecord:
        body = {
            "metadata": {"resourceVersion": known.metadata.version},
            "spec": _spec(holder, epoch, anew=anew),
        }
        return self._wrote(
            await self._api.request("PATCH", self._path, body=body, content_type=MERGE_PATCH, timeout=_WITHIN)
        )

    def _wrote(self, answer: bytes) -> LeaseRecord:
        record = _record(answer)
        self._holder = record.spec.holder
        return record

    @property
    def _path(self) -> str:
        return f"{self._collection}/{self._lease}"


def _spec(holder: str, epoch: int, *, anew: bool) -> dict[str, str | int]:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    said: dict[str, str | int] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": now,
        "leaseTransitions": epoch,
    }
    return {**said, "acquireTime": now} if anew else said


def _record(body: bytes) -> LeaseRecord:
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"the Lease cannot be read: {single_line(str(error))}") from None
