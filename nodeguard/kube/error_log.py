"""Log messages about API errors: one when a kind of error begins, and one when it ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from nodeguard.kube.errors import ApiError

Log = Callable[[str], None]

# HTTP status and reason.
_ErrorKind = tuple[int, str]


class ErrorLog:
    """Logs the errors of one repeated request. resource: its plural name, as in `Nodes`."""

    def __init__(self, resource: str, log: Log) -> None:
        self._resource = resource
        self._log = log
        self._active: set[_ErrorKind] = set()

    def failed(self, error: ApiError) -> None:
        """Log an error, unless one of its kind was logged since the last success."""
        kind = (error.status, error.reason)
        if kind not in self._active:
            self._active.add(kind)
            self._log(f"{self._resource}: {error.message}")

    def recovered(self) -> None:
        """Log that the request succeeds again, if it failed before."""
        if self._active:
            self._active.clear()
            self._log(f"{self._resource}: the Kubernetes API responds again")


class WriteErrorLog:
    """Logs the errors of many writes: the first write and the last write that fail with one kind of error."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._keys: dict[_ErrorKind, set[Hashable]] = {}
        self._kinds: dict[Hashable, _ErrorKind] = {}

    def failed(self, key: Hashable, error: ApiError) -> None:
        """Record that a write failed. Log the error if no other write has one of this kind."""
        kind = (error.status, error.reason)
        if self._kinds.get(key) == kind:
            return
        self.finished(key)
        if kind not in self._keys:
            self._log(f"Writes: {error.message}")
        self._kinds[key] = kind
        self._keys.setdefault(kind, set()).add(key)

    def finished(self, key: Hashable) -> None:
        """Record that a write succeeded or is no longer wanted. Log it if it was the last of its kind."""
        kind = self._kinds.pop(key, None)
        if kind is None:
            return
        keys = self._keys[kind]
        keys.discard(key)
        if not keys:
            del self._keys[kind]
            status, reason = kind
            self._log(f"Writes: no write fails with {status or 'no response'} ({reason}) any more")
