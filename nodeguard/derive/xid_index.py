"""The recent Xids of one GPU, indexed by code and time. Pure.

An Xid is often explained by another Xid of the same GPU within a minute. The index answers each such question
with a binary search, so that the work for n Xids grows as n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.model.catalogue import Catalogue, Xid

# Xids that are no further apart than this (seconds) can explain each other.
WINDOW = 60.0

# Xids that report a repair of the memory: 63 recorded, 64 failed.
_REPAIRS = frozenset({63, 64})

_UNLISTED = Xid(0, "", "a code that the table does not list", "unlisted", "unknown", "unlisted", "unknown")


class XidRecord(Struct, frozen=True, array_like=True):
    """One Xid of a GPU."""

    code: int
    at: float
    """Seconds since boot."""

    recovery: int = -1
    """The recovery action of a 154; -1 for other codes."""

    has_message: bool = False
    """True for a line of the kernel log, false for an event of NVML."""

    named: int = 0
    """The cause that a line of Xid 45 names; 0 for none."""


class XidIndex(Struct, frozen=True):
    """Xids of one GPU for lookups by time. Times are in seconds since boot, ascending."""

    times: tuple[float, ...] = ()
    """Times of the causes: the errors of the GPU itself."""

    codes: tuple[int, ...] = ()
    """Codes of the causes, in the order of their times."""

    repair_times: tuple[float, ...] = ()
    """Times of Xids 63 and 64."""

    repair_codes: tuple[int, ...] = ()
    """Codes of these, in the order of their times."""

    recovery_times: tuple[float, ...] = ()
    """Times of 154s that ask for a recovery."""

    message_times: dict[int, tuple[float, ...]] = {}
    """Times of Xids with a message, by code."""

    all_times: dict[int, tuple[float, ...]] = {}
    """Times of all Xids, by code."""

    named_times: dict[int, tuple[float, ...]] = {}
    """Times of the 45s that name a cause, by cause."""

    def cause(self, at: float) -> int:
        """Return the code of the cause nearest to a time, 0 where none is within WINDOW."""
        return _nearest_code(self.times, self.codes, at)

    def repair(self, at: float) -> int:
        """Return the code of the repair nearest to a time, 0 where none is within WINDOW."""
        return _nearest_code(self.repair_times, self.repair_codes, at)

    def asks_for_recovery(self, at: float) -> bool:
        """Return whether the driver asked for a recovery within WINDOW of a time."""
        return _nearest(self.recovery_times, at) is not None

    def has_message_near(self, code: int, at: float) -> bool:
        """Return whether an Xid of the code with a message is within WINDOW of a time."""
        return _nearest(self.message_times.get(code, ()), at) is not None

    def is_near(self, code: int, at: float) -> bool:
        """Return whether an Xid of the code is within WINDOW of a time."""
        return _nearest(self.all_times.get(code, ()), at) is not None

    def is_named_before(self, cause: int, at: float) -> bool:
        """Return whether an earlier Xid 45 within WINDOW names the same cause: it ends one channel each."""
        times = self.named_times.get(cause, ())
        earlier = bisect_left(times, at) - 1
        return earlier >= 0 and at - times[earlier] <= WINDOW


def index_xids(xids: Iterable[XidRecord], table: Catalogue) -> XidIndex:
    """Return the index of the Xids of one GPU. table: names the codes that are errors of the GPU itself."""
    ordered = sorted(xids, key=lambda record: record.at)
    causes = [record for record in ordered if is_cause(record.code, table)]
    repairs = [record for record in ordered if record.code in _REPAIRS]
    with_message = [record for record in ordered if record.has_message]
    return XidIndex(
        times=tuple(record.at for record in causes),
        codes=tuple(record.code for record in causes),
        repair_times=tuple(record.at for record in repairs),
        repair_codes=tuple(record.code for record in repairs),
        recovery_times=tuple(record.at for record in ordered if record.recovery >= 1),
        message_times=_times_by_code((record.code, record.at) for record in with_message),
        all_times=_times_by_code((record.code, record.at) for record in ordered),
        named_times=_times_by_code((record.named, record.at) for record in ordered if record.named),
    )


def _times_by_code(records: Iterable[tuple[int, float]]) -> dict[int, tuple[float, ...]]:
    """Return the times of each code. records: code and time, in order of time."""
    times: dict[int, list[float]] = {}
    for code, at in records:
        times.setdefault(code, []).append(at)
    return {code: tuple(values) for code, values in times.items()}


def xid_row(code: int, table: Catalogue) -> Xid:
    """Return the table's row of a code, or a row for a code that the table does not list."""
    return table.xids.get(code, _UNLISTED)


def is_cause(code: int, table: Catalogue) -> bool:
    """Return whether a code reports an error of the GPU itself that needs an action."""
    row = xid_row(code, table)
    verdict = table.response(row.action).verdict
    return row.workload != "yes" and row.topic != "recovery" and verdict != "ignored"


def _nearest(times: Sequence[float], at: float) -> int | None:
    """Return the position of the time nearest to `at`, the earlier of two; None beyond WINDOW."""
    after = bisect_left(times, at)
    near = [index for index in (after - 1, after) if 0 <= index < len(times)]
    if not near:
        return None
    index = min(near, key=lambda index: abs(times[index] - at))
    return index if abs(times[index] - at) <= WINDOW else None


def _nearest_code(times: Sequence[float], codes: Sequence[int], at: float) -> int:
    index = _nearest(times, at)
    return 0 if index is None else codes[index]
