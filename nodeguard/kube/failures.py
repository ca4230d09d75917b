"""Which writes fail: told once for each kind of error, and when the last of that kind is over. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from nodeguard.kube.refusal import ApiError
from nodeguard.kube.trouble import Tell

_Kind = tuple[int, str]


class Failures:
    """Errors by their kind, and which writes have them. tell: takes sentences."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._kinds: dict[_Kind, set[Hashable]] = {}
        self._keys: dict[Hashable, _Kind] = {}

    def begun(self, key: Hashable, error: ApiError) -> None:
        """A write has failed. The first of a kind is told."""
        kind = (error.status, error.reason)
        if self._keys.get(key) == kind:
            return
        self.over(key)
        if kind not in self._kinds:
            self._tell(f"Writes: {error.message}")
        self._keys[key] = kind
        self._kinds.setdefault(kind, set()).add(key)

    def over(self, key: Hashable) -> None:
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
