"""A text in a file, for standalone mode, in which one process has the directory."""

from __future__ import annotations

import asyncio

from nodeguard.config.regular_file import read_regular_file
from nodeguard.local.atomic_write import atomic_write
from nodeguard.model.stored_text import StoredText, StoreError

# Bytes of a file that is read.
_LIMIT = 1024 * 1024


class FileStore:
    """A file with these permissions. Its directory is created if it is missing."""

    def __init__(self, path: str, mode: int) -> None:
        self.name = path
        self._mode = mode

    async def read(self) -> StoredText:
        """Return the stored text. Raises StoreError."""
        return await asyncio.to_thread(self._read)

    async def write(self, text: str, previous: StoredText) -> None:
        """Replace the file. There is no conflict: one process has the directory. Raises StoreError."""
        del previous
        await asyncio.to_thread(self._write, text)

    def _read(self) -> StoredText:
        try:
            return StoredText(read_regular_file(self.name, _LIMIT).decode(errors="replace"), "file")
        except FileNotFoundError:
            return StoredText()
        except OSError as error:
            raise self._error(error) from None

    def _write(self, text: str) -> None:
        try:
            atomic_write(self.name, (text.encode(),), self._mode)
        except OSError as error:
            raise self._error(error) from None

    def _error(self, error: OSError) -> StoreError:
        return StoreError(
            f"{error.filename or self.name}: {error.strerror}: make room, make it writable, or name another "
            "directory"
        )
