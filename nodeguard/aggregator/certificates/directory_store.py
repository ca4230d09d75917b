"""The store of the self-signed authority in a directory, for standalone mode. Its key must stay secret."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from nodeguard.local.atomic_write import atomic_write
from nodeguard.model.stored_authority import StoreConflictError, Stored, StoreError

_STATE, _BUNDLE, _LOCK = "authority.json", "ca.crt", "authority.lock"

# Bytes of a file that is read.
_LIMIT = 1024 * 1024


class DirectoryStore:
    """A directory. Its last part is created if it is missing. Agents need its ca.crt."""

    def __init__(self, path: str) -> None:
        self.name = f"{path.rstrip('/')}/{_STATE}"
        self._path = path.rstrip("/") or "/"

    async def read(self) -> Stored:
        """Return the stored state and bundle. Raises StoreError."""
        return await asyncio.to_thread(self._read)

    async def keep(self, state: bytes, before: Stored) -> None:
        """Write a state. Raises StoreConflictError, StoreError."""
        await asyncio.to_thread(self._write, _STATE, state, 0o600, before.version)

    async def publish(self, bundle: str, before: Stored) -> None:
        """Write the CA bundle for agents. Raises StoreConflictError, StoreError."""
        await asyncio.to_thread(self._write, _BUNDLE, bundle.encode(), 0o644, before.bundle_version)

    def _read(self) -> Stored:
        with self._store_errors():
            bundle, state = self._content(_BUNDLE), self._content(_STATE)
        try:
            text = bundle.decode("ascii")
        except UnicodeDecodeError:
            text = ""
        return Stored(state, _version(state), text, _version(bundle))

    def _write(self, name: str, content: bytes, mode: int, version: str) -> None:
        with self._store_errors():
            if not os.path.isdir(self._path):
                os.mkdir(self._path, 0o700)
            with self._locked():
                if _version(self._content(name)) != version:
                    raise StoreConflictError
                atomic_write(f"{self._path}/{name}", (content,), mode)

    def _content(self, name: str) -> bytes:
        try:
            with open(f"{self._path}/{name}", "rb") as file:
                return file.read(_LIMIT)
        except FileNotFoundError:
            return b""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        number = os.open(f"{self._path}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{error.filename or self._path}: {error.strerror}: make room, make it writable, "
                "or name another directory"
            ) from None


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if content else ""
