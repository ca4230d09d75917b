"""The aggregator's certificate authority as it is kept, whoever keeps it."""

from __future__ import annotations

from msgspec import Struct


class Stored(Struct, frozen=True):
    """What is kept. state: secret, empty where there is none. bundle: certificates in PEM for all to read.

    Each version names what was read, so that nobody writes over what somebody else wrote since; empty where
    there was nothing.
    """

    state: bytes = b""
    version: str = ""
    bundle: str = ""
    bundle_version: str = ""

    def __repr__(self) -> str:
        return f"Stored(version={self.version!r}, bundle_version={self.bundle_version!r})"


class StoreError(Exception):
    """What is kept cannot be read or written; says why and how to remedy, and nothing secret."""


class StoreConflictError(Exception):
    """Somebody else wrote first: read again."""
