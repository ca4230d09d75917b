"""How a call that may block is asked: announced before it begins, written down with its result after.

One way for the worker process, whose announcements outlive it in a log that its parent reads, and for a
rehearsal on a recording. Imported by the worker process: nothing here is slow to import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    # Answers one call: its scope and name → its result as JSON, `{"error": NAME}` where it failed, None where
    # it has none to give, `{"missing": WHY}` where there is nothing to call at all, `{"failed": WHY}` where
    # the worker itself cannot call it. A recording may raise UnansweredError.
    Call = Callable[[int, str], Any]
    # Answers several NVML field values at once: the device's scope and (field, scope within the device) of
    # each → the result of each.
    Fields = Callable[[int, Sequence[tuple[int, int]]], list[Any]]

# Scope of a call that belongs to no device or mount.
SYSTEM = -1

FIELD_VALUES = "nvmlDeviceGetFieldValues"


def error_name(result: Any) -> str:
    """Name of the error that a result is, empty where it is none."""
    return str(result.get("error", "")) if isinstance(result, dict) else ""


class CallLog:
    """Asks `call`, and tells `write` of it: `[scope, CALL]` before, `[scope, {CALL: result, …}]` after.

    `[scope, [GROUP, …]]` is told instead where nothing is asked, because results of before still stand.

    CALL is named as bundles name it, with its arguments. fields: a quicker way to ask field values; without
    it each is a call of its own.
    """

    def __init__(
        self, call: Call, write: Callable[[list[Any]], object], fields: Fields | None = None
    ) -> None:
        self._call = call
        self._write = write
        self._fields = fields

    def __call__(self, scope: int, call: str) -> Any:
        """Result of one call."""
        self._write([scope, call])
        result = self._call(scope, call)
        self._write([scope, {call: result}])
        return result

    def fields(self, scope: int, fields: Iterable[tuple[int, int]]) -> list[Any]:
        """Results of NVML field values in their order, announced as the one call that they are."""
        wanted = tuple(fields)
        if not wanted:
            return []
        names = [f"{FIELD_VALUES}({field},{within})" for field, within in wanted]
        self._write([scope, FIELD_VALUES])
        results = self._fields(scope, wanted) if self._fields else [self._call(scope, name) for name in names]
        self._write([scope, dict(zip(names, results, strict=True))])
        return results

    def mark_unchanged(self, scope: int, groups: list[int]) -> None:
        """Groups of calls, see nvml_calls, whose results are those that were told last."""
        if groups:
            self._write([scope, groups])
