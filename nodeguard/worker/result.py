"""What a lane brings back from one round of calls that may block."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nodeguard.worker.call_log import SYSTEM as SYSTEM  # noqa: PLC0414  (other rooms find it beside Entry)


class CallResult(Struct, frozen=True, array_like=True):
    """One call and its result.

    scope: the device's or mount's index, or SYSTEM. call: name with arguments, as bundles write it:
    `nvmlDeviceGetNvLinkState(3)`. result: what the call gave, as JSON; `{"error": NAME}` where it failed.
    """

    scope: int
    call: str
    result: Any = None


class LaneResult(Struct, frozen=True):
    """One round of one lane.

    entries: all that was read, in the order of the calls; a call that has no result to give, such as one that
    opens a device, is there only where it failed. stalled: calls that met no answer until SIGKILL ended their
    process, or that ended it themselves (the result then says how); their scope is at rest since. Several
    field values asked at once are one call, `nvmlDeviceGetFieldValues`. hung: a call that not even SIGKILL
    ended; nothing after it was read, and nothing will be in this boot. missing: why there is nothing to ask,
    such as a library that is not on the machine. resting: the calls that stalled in earlier rounds, whose
    scopes were left alone in this one. cut: the call under way when the round's time was over; nothing after
    it was asked. It is among the stalled, too, where it was slow already. failed: why the round has no end,
    or no beginning, through a fault of ours, such as a process that cannot be started; it says nothing of
    what was to be asked.
    """

    results: tuple[CallResult, ...] = ()
    stalled: tuple[CallResult, ...] = ()
    hung: CallResult | None = None
    missing: str = ""
    resting: tuple[CallResult, ...] = ()
    interrupted: CallResult | None = None
    failed: str = ""
