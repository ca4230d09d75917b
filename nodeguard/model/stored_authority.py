"""The stored form of the aggregator's certificate authority, for every kind of store."""

from __future__ import annotations

from msgspec import Struct


class Stored(Struct, frozen=True):
    """A stored certificate authority.

    state: secret, empty if there is none. bundle: public certificates in PEM. version,
    bundle_version: version of what was read, so that a write does not overwrite another writer's; empty if
    nothing was stored.
    """

    state: bytes = b""
    version: str = ""
    bundle: str = ""
    bundle_version: str = ""

    def __repr__(self) -> str:
        return f"Stored(version={self.version!r}, bundle_version={self.bundle_version!r})"


class StoreError(Exception):
    """The store cannot be read or written. The message has the reason and the remedy, and no secret."""


class StoreConflictError(Exception):
    """Another writer was first: read again."""
