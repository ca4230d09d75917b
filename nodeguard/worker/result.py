"""LaneResult: the results of one round of calls that may block."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nodeguard.worker.call_log import SYSTEM as SYSTEM  # noqa: PLC0414  (re-exported beside CallResult)


class CallResult(Struct, frozen=True, array_like=True):
    """One call and its result.

    scope: the device's or mount's index, or SYSTEM. call: name with arguments, in the form of bundles:
    `nvmlDeviceGetNvLinkState(3)`. result: the call's result as JSON; `{"error": NAME}` if it failed.
    """

    scope: int
    call: str
    result: Any = None


class LaneResult(Struct, frozen=True):
    """One round of one lane.

    results: all results, in the order of the calls. A call without a result, such as one that opens a device,
    is present only if it failed.
    stalled: calls without an answer until SIGKILL ended their process, and calls that ended it themselves
    (the result then says how). Their scopes rest from now on. Field values that are read together are one
    call, `nvmlDeviceGetFieldValues`.
    hung: a call that did not end on SIGKILL. Nothing after it was read, and nothing will be in this boot.
    missing: why there is nothing to call, such as a library that is not on the machine.
    resting: calls that stalled in earlier rounds; this round skipped their scopes.
    interrupted: the call in progress when the round's time was over; nothing after it was called. If it was
    already slow, it is also in `stalled`.
    failed: why the round did not start or end, through a fault of nodeguard, such as a process that cannot be
    started. It means nothing for the hardware.
    """

    results: tuple[CallResult, ...] = ()
    stalled: tuple[CallResult, ...] = ()
    hung: CallResult | None = None
    missing: str = ""
    resting: tuple[CallResult, ...] = ()
    interrupted: CallResult | None = None
    failed: str = ""
