"""When an agent says what to one receiver. Pure: time is seconds of a clock that never jumps."""

from __future__ import annotations

from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

# Seconds. HEARTBEAT: between two messages while nothing changes; REWORDED: between two reports that differ in
# words alone. A receiver that does not hear is asked again after FIRST, then twice as late each time, up to
# LONGEST, which is also as far as it may put its agents off itself (HTTP's Retry-After): all of a fleet that
# lost its aggregator is back within a minute of it, and not in one second.
HEARTBEAT = 10.0
REWORDED = 60.0
FIRST = 1.0
LONGEST = 60.0

What = Literal["nothing", "spooled", "report", "heartbeat", "leave"]


class Line(Struct, frozen=True):
    """What an agent knows of one receiver.

    digest, wording: of the report that it last heard in full; empty where it must be told. told: when it
    heard that; heard: when it heard anything. next: before this, nothing is due. wait: until then, not even a
    change is sent. failures: in a row. refused: whether it refused the latest message because of others of
    this node: then heartbeats are sent until it accepts one, as they show that this boot is alive now.
    """

    digest: str = ""
    wording: str = ""
    told: float = -inf
    heard: float = -inf
    next: float = -inf
    wait: float = -inf
    failures: int = 0
    refused: bool = False


class Have(Struct, frozen=True):
    """What there is to be told: digests of the latest report, empty before the first; and whether transitions
    wait in the spool.
    """

    digest: str = ""
    wording: str = ""
    spooled: bool = False


def due(line: Line, have: Have, now: float) -> What:
    """What this receiver is to be told now. Transitions go first, in their order."""
    if now < line.wait:
        return "nothing"
    if have.spooled:
        return "spooled"
    if not have.digest:
        return "nothing"
    if line.refused:
        return "heartbeat"
    if line.digest != have.digest:
        return "report"
    if line.wording != have.wording and now >= line.told + REWORDED:
        return "report"
    return "heartbeat" if now >= line.next else "nothing"


def when(line: Line, have: Have, now: float) -> float:
    """Seconds until something may be due; 0 where it is now."""
    if due(line, have, now) != "nothing":
        return 0.0
    if now < line.wait:
        return line.wait - now
    if not have.digest:
        return HEARTBEAT
    reworded = line.told + REWORDED if line.wording != have.wording else inf
    return max(0.0, min(line.next, reworded) - now)


def told(line: Line, digest: str, wording: str, now: float, jitter: float) -> Line:
    """The line after a report was heard. jitter: 0 to 1."""
    after = _heard(line, now, jitter)
    return replace(after, digest=digest, wording=wording, told=now)


def beaten(line: Line, now: float, jitter: float, *, resend: bool) -> Line:
    """The line after a heartbeat was heard. resend: the receiver asks for the report in full."""
    after = _heard(line, now, jitter)
    return replace(after, digest="") if resend else after


def failed(line: Line, now: float, jitter: float, put_off: float = 0.0) -> Line:
    """The line after a message was not heard, or may not have been. put_off: seconds the receiver asked for.

    The wait is drawn from the upper half of what is allowed, so that agents spread, and none asks at once.
    """
    most = min(LONGEST, FIRST * 2.0 ** min(line.failures, 30))
    wait = max(most * (0.5 + 0.5 * jitter), min(max(put_off, 0.0), LONGEST) * (1.0 + 0.25 * jitter))
    return replace(line, failures=line.failures + 1, wait=now + wait)


def refused(line: Line, now: float, jitter: float) -> Line:
    """The line after a message that the receiver refuses because of others of this node.

    It is not too busy, and accepts a boot that goes on reporting: so the pause does not grow.
    """
    wait = now + _pause(jitter)
    return replace(line, digest="", failures=max(1, line.failures), wait=wait, refused=True)


def sequence(last: int, mono: float) -> int:
    """The sequence of the next message: above all of this boot, after a restart of the agent too.

    It follows the clock of the boot in milliseconds, so that nothing has to be remembered on a disk.
    """
    return max(last + 1, int(mono * 1000.0))


def _heard(line: Line, now: float, jitter: float) -> Line:
    return replace(line, failures=0, wait=-inf, heard=now, next=now + _pause(jitter), refused=False)


def _pause(jitter: float) -> float:
    """Seconds until the next heartbeat."""
    return HEARTBEAT * (0.9 + 0.1 * jitter)
