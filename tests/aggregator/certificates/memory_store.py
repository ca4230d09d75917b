"""A store in memory that refuses concurrent writes, as the API server does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nodeguard.model.stored_text import StoreConflictError, StoredText


class MemoryStore:
    """One text; empty for a deleted object. after_read: what others do after the next read."""

    name = "memory"

    def __init__(self, text: str = "") -> None:
        self.text, self.writes = text, 0
        self.after_read: Callable[[], Awaitable[None]] | None = None

    async def read(self) -> StoredText:
        stored, after = self._stored(), self.after_read
        self.after_read = None
        if after is not None:
            await after()
        return stored

    async def write(self, text: str, previous: StoredText) -> None:
        if previous != self._stored():
            raise StoreConflictError
        self.text, self.writes = text, self.writes + 1

    def delete(self) -> None:
        self.text, self.writes = "", self.writes + 1

    def _stored(self) -> StoredText:
        return StoredText(self.text, str(self.writes) if self.text else "")
