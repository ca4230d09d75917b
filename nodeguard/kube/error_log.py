"""Trouble with the API is told once, and so is its end."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from nodeguard.kube.errors import ApiError

Log = Callable[[str], None]


class ErrorLog:
    """What is wrong with one thing that is asked for. what: its name in the plural, as in `Nodes`."""

    def __init__(self, what: str, tell: Log) -> None:
        self._what = what
        self._tell = tell
        self._told: set[tuple[int, str]] = set()

    def failed(self, error: ApiError) -> None:
        """An error; told unless one of its kind was since all was well."""
        kind = (error.status, error.reason)
        if kind not in self._told:
            self._told.add(kind)
            self._tell(f"{self._what}: {error.message}")

    def recovered(self) -> None:
        """All is well, which is told where it was not."""
        if self._told:
            self._told.clear()
            self._tell(f"{self._what}: the Kubernetes API answers again")


_Kind = tuple[int, str]


class WriteErrorLog:
    """Errors by their kind, and which writes have them. tell: takes sentences."""

    def __init__(self, tell: Log) -> None:
        self._tell = tell
        self._kinds: dict[_Kind, set[Hashable]] = {}
        self._keys: dict[Hashable, _Kind] = {}

    def failed(self, key: Hashable, error: ApiError) -> None:
        """A write has failed. The first of a kind is told."""
        kind = (error.status, error.reason)
        if self._keys.get(key) == kind:
            return
        self.finished(key)
        if kind not in self._kinds:
            self._tell(f"Writes: {error.message}")
        self._keys[key] = kind
        self._kinds.setdefault(kind, set()).add(key)

    def finished(self, key: Hashable) -> None:
        """A write is done, or not wanted any more. The last of a kind is told."""
        if (kind := self._leave(key)) is not None:
            status, reason = kind
            self._tell(f"Writes: none fails any more with {status or 'no answer'} ({reason})")

    def _leave(self, key: Hashable) -> _Kind | None:
        """The kind that a write had, where it was the last."""
        kind = self._keys.pop(key, None)
        if kind is None:
            return None
        having = self._kinds[kind]
        having.discard(key)
        if having:
            return None
        del self._kinds[kind]
        return kind
