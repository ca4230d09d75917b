"""The token that authenticates this node to the aggregator, read again whenever its file rotates."""

from __future__ import annotations

import os
import re

# A projected service account token has about 1 KiB.
_LIMIT = 16 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+\Z")


class CredentialError(Exception):
    """A missing token; the message has the reason and the remedy, and never the token."""


class TokenFile:
    """A token in a file. A change of the file's identity, size or time of modification is a rotation."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version: tuple[int, int, int, int] | None = None
        self._token = ""

    def __repr__(self) -> str:
        return f"TokenFile({self._path!r})"

    def token(self) -> str:
        """Return the present token, or the last one while the file cannot be read: a rotation may cause that.

        Raises CredentialError if there was no token before.
        """
        try:
            self._read_if_changed()
        except OSError as error:
            if not self._token:
                raise CredentialError(
                    f"{self._path}: {error.strerror}: mount the node's token there, or set its path"
                ) from None
        return self._token

    def forget(self) -> None:
        """Read the file again next time, even if it did not change: the aggregator refused the token."""
        self._version = None

    def _read_if_changed(self) -> None:
        with os.fdopen(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            stat = os.fstat(file.fileno())
            version = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version == self._version:
                return
            text = file.read(_LIMIT + 1).decode("ascii", "replace").strip()
        if len(text) <= _LIMIT and _TOKEN.match(text):
            self._token, self._version = text, version
        elif not self._token:
            raise CredentialError(f"{self._path} holds no token: it must be one line of letters and digits")
