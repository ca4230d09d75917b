"""A text in a store that replicas share, such as a certificate authority, for every kind of store."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class StoredText(Struct, frozen=True):
    """A text as it was read, which may be a secret."""

    text: str = ""
    version: str = ""
    """Version of the stored text, so that a write does not overwrite another writer's; empty for none."""

    def __repr__(self) -> str:
        return f"StoredText(version={self.version!r})"


class TextStore(Protocol):
    """Stores one text."""

    name: str

    async def read(self) -> StoredText:
        """Return the stored text. Raises StoreError."""

    async def write(self, text: str, previous: StoredText) -> None:
        """Replace what was read, or create it. Raises StoreConflictError, StoreError."""


class StoreError(Exception):
    """The store cannot be read or written. The message has the reason and the remedy, and no secret."""


class StoreConflictError(Exception):
    """Another writer was first: read again."""
