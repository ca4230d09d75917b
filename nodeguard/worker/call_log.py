"""CallLog: makes calls that may block, and logs each before it starts and with its result after.

The worker process writes to a log that survives it and that its parent reads; a replay of a recording uses
the same class. Imported by the worker process: this module imports nothing that is slow to import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    # Makes one call: scope and name → the result as JSON, `{"error": NAME}` if it failed, None if it returns
    # nothing, `{"missing": REASON}` if there is nothing to call, `{"failed": REASON}` if the worker itself
    # cannot make the call. A recording may raise UnansweredError.
    Call = Callable[[int, str], Any]
    # Reads several NVML field values at once: the device's scope and (field, scope within the device) of each
    # value → the result of each value.
    Fields = Callable[[int, Sequence[tuple[int, int]]], list[Any]]

# Scope of a call that belongs to no device or mount.
SYSTEM = -1

FIELD_VALUES = "nvmlDeviceGetFieldValues"


def error_name(result: Any) -> str:
    """Return the name of the error in a result, empty if it is not an error."""
    return str(result.get("error", "")) if isinstance(result, dict) else ""


class CallLog:
    """Makes calls and writes log lines: `[scope, CALL]` before a call, `[scope, {CALL: result, …}]` after it.

    It writes `[scope, [GROUP, …]]` for groups of calls that it does not make, because their earlier results
    are still valid, and `[scope, null]` after a call on a device with the same result as the last time.

    CALL has the form of bundles, with its arguments. fields: reads several field values in one call; without
    it each is a call of its own. omits_repeated: whether the reader of the log keeps earlier results.
    """

    def __init__(
        self,
        call: Call,
        write: Callable[[list[Any]], object],
        fields: Fields | None = None,
        *,
        omits_repeated: bool = False,
    ) -> None:
        self._call = call
        self._write = write
        self._fields = fields
        self._results: dict[tuple[int, str], Any] | None = {} if omits_repeated else None

    def __call__(self, scope: int, call: str) -> Any:
        """Make one call and return its result."""
        self._write([scope, call])
        result = self._call(scope, call)
        self._write([scope, None if self._is_repeated(scope, call, result) else {call: result}])
        return result

    def _is_repeated(self, scope: int, call: str, result: Any) -> bool:
        """Return whether a call on a device has the result of the last time; note the result."""
        if self._results is None or scope == SYSTEM or result is None:
            return False
        is_repeated: bool = self._results.get((scope, call)) == result
        self._results[scope, call] = result
        return is_repeated

    def fields(self, scope: int, fields: Iterable[tuple[int, int]]) -> list[Any]:
        """Read NVML field values, logged as one call, and return the results in their order."""
        values = tuple(fields)
        if not values:
            return []
        names = [f"{FIELD_VALUES}({field},{within})" for field, within in values]
        self._write([scope, FIELD_VALUES])
        results = self._fields(scope, values) if self._fields else [self._call(scope, name) for name in names]
        self._write([scope, dict(zip(names, results, strict=True))])
        return results

    def mark_unchanged(self, scope: int, groups: list[int]) -> None:
        """Log that the last results of some groups of calls, see nvml_calls, are still valid."""
        if groups:
            self._write([scope, groups])
