"""When an agent sends which message to one aggregator. Pure: times are seconds of a monotonic clock."""

from __future__ import annotations

from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.local.backoff import backoff, jittered

# Seconds. HEARTBEAT_INTERVAL: between two messages while nothing changes. TEXT_INTERVAL: between two reports
# that differ only in text. A failed message is retried after FIRST_RETRY, then twice as late each time, up to
# MAX_RETRY, which also limits the Retry-After of the aggregator: a fleet that lost its aggregator is back
# within a minute of it, and not in one second.
HEARTBEAT_INTERVAL = 10.0
TEXT_INTERVAL = 60.0
FIRST_RETRY = 1.0
MAX_RETRY = 60.0

MessageKind = Literal["nothing", "spooled", "report", "heartbeat", "leave"]


class EndpointState(Struct, frozen=True):
    """The state of an agent for one aggregator.

    digest, text_digest: of the report that it last acknowledged; empty if it needs the report in full.
    reported_at: when it acknowledged that; acked_at: when it acknowledged anything. next_at: before this time
    no heartbeat is due. not_before: until then not even a change is sent. failures: in a row. is_refused: it
    refused the latest message because of other messages of this node. Then the agent sends heartbeats until
    one is accepted, since they show that this boot is alive now.
    """

    digest: str = ""
    text_digest: str = ""
    reported_at: float = -inf
    acked_at: float = -inf
    next_at: float = -inf
    not_before: float = -inf
    failures: int = 0
    is_refused: bool = False


class Pending(Struct, frozen=True):
    """What there is to send: the digests of the latest report, empty before the first, and whether the spool
    has transitions.
    """

    digest: str = ""
    text_digest: str = ""
    is_spooled: bool = False


def due_message(endpoint: EndpointState, pending: Pending, now: float) -> MessageKind:
    """Return what to send now. Transitions go first, in their order."""
    if now < endpoint.not_before:
        return "nothing"
    if pending.is_spooled:
        return "spooled"
    if not pending.digest:
        return "nothing"
    if endpoint.is_refused:
        return "heartbeat"
    if endpoint.digest != pending.digest:
        return "report"
    if endpoint.text_digest != pending.text_digest and now >= endpoint.reported_at + TEXT_INTERVAL:
        return "report"
    return "heartbeat" if now >= endpoint.next_at else "nothing"


def seconds_until_due(endpoint: EndpointState, pending: Pending, now: float) -> float:
    """Return the seconds until a message may be due; 0 if one is due now."""
    if due_message(endpoint, pending, now) != "nothing":
        return 0.0
    if now < endpoint.not_before:
        return endpoint.not_before - now
    if not pending.digest:
        return HEARTBEAT_INTERVAL
    has_new_text = endpoint.text_digest != pending.text_digest
    text_at = endpoint.reported_at + TEXT_INTERVAL if has_new_text else inf
    return max(0.0, min(endpoint.next_at, text_at) - now)


def after_report(
    endpoint: EndpointState, digest: str, text_digest: str, now: float, jitter: float
) -> EndpointState:
    """Return the state after an acknowledged report. jitter: 0 to 1."""
    after = _acknowledged(endpoint, now, jitter)
    return replace(after, digest=digest, text_digest=text_digest, reported_at=now)


def after_heartbeat(endpoint: EndpointState, now: float, jitter: float, *, resend: bool) -> EndpointState:
    """Return the state after an acknowledged heartbeat. resend: the aggregator needs the report in full."""
    after = _acknowledged(endpoint, now, jitter)
    return replace(after, digest="") if resend else after


def after_failure(
    endpoint: EndpointState, now: float, jitter: float, retry_after: float = 0.0
) -> EndpointState:
    """Return the state after a message without a valid reply. retry_after: seconds, from the aggregator."""
    requested = min(max(retry_after, 0.0), MAX_RETRY) * (1.0 + 0.25 * jitter)
    delay = max(jittered(backoff(endpoint.failures, FIRST_RETRY, MAX_RETRY), jitter), requested)
    return replace(endpoint, failures=endpoint.failures + 1, not_before=now + delay)


def after_refusal(endpoint: EndpointState, now: float, jitter: float) -> EndpointState:
    """Return the state after a message that the aggregator refuses because of others of this node.

    The aggregator is not overloaded, and accepts a boot that keeps reporting: so the delay does not grow.
    """
    delay = _heartbeat_delay(jitter)
    failures = max(1, endpoint.failures)
    return replace(endpoint, digest="", failures=failures, not_before=now + delay, is_refused=True)


def next_sequence(last: int, mono: float) -> int:
    """Return the sequence of the next message: higher than all of this boot, also after a restart.

    It follows the clock of the boot in milliseconds, so it needs no state on a disk.
    """
    return max(last + 1, int(mono * 1000.0))


def _acknowledged(endpoint: EndpointState, now: float, jitter: float) -> EndpointState:
    next_at = now + _heartbeat_delay(jitter)
    return replace(endpoint, failures=0, not_before=-inf, acked_at=now, next_at=next_at, is_refused=False)


def _heartbeat_delay(jitter: float) -> float:
    return HEARTBEAT_INTERVAL * (0.9 + 0.1 * jitter)
