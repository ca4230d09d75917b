"""What a lane brings back from one round of calls that may block."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

# Scope of a call that belongs to no device or mount.
SYSTEM = -1


class Entry(Struct, frozen=True, array_like=True):
    """One call and its result.

    scope: the device's or mount's index, or SYSTEM. call: name with arguments, as bundles write it:
    `nvmlDeviceGetNvLinkState(3)`. result: what the call gave, as JSON; `{"error": NAME}` where it failed.
    """

    scope: int
    call: str
    result: Any = None


class Answer(Struct, frozen=True):
    """One round of one lane.

    entries: all that was read, in the order of the calls. stalled: calls that met no answer until SIGKILL
    ended their process; their scope is at rest since. hung: a call that not even SIGKILL ended; nothing after
    it was read, and nothing will be in this boot. missing: why the round could not begin at all, such as a
    library that is not on the machine.
    """

    entries: tuple[Entry, ...] = ()
    stalled: tuple[Entry, ...] = ()
    hung: Entry | None = None
    missing: str = ""
