"""The token that names this node to the aggregator: a file that is read again whenever it rotates."""

from __future__ import annotations

import os
import re

# A projected service-account token has about 1 KiB.
_LARGEST = 16 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+\Z")


class CredentialError(Exception):
    """There is no token to be had; says why and how to remedy, and never the token."""


class TokenFile:
    """A token in a file. A rotation is seen by the file's identity, size or time of change, through links."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int, int] | None = None
        self._token = ""

    def __repr__(self) -> str:
        return f"TokenFile({self._path!r})"

    def token(self) -> str:
        """The token as it is now.

        While the file cannot be read, the last one: a rotation may pass through such a moment. Raises
        CredentialError where there was none before.
        """
        try:
            self._read_if_new()
        except OSError as error:
            if not self._token:
                raise CredentialError(
                    f"{self._path}: {error.strerror}: mount the node's token there, or set its path"
                ) from None
        return self._token

    def forget(self) -> None:
        """Read the file again next time, whatever it looks like: the receiver did not accept what it held."""
        self._seen = None

    def _read_if_new(self) -> None:
        with os.fdopen(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            known = os.fstat(file.fileno())
            seen = (known.st_dev, known.st_ino, known.st_mtime_ns, known.st_size)
            if seen == self._seen:
                return
            text = file.read(_LARGEST + 1).decode("ascii", "replace").strip()
        if len(text) <= _LARGEST and _TOKEN.match(text):
            self._token, self._seen = text, seen
        elif not self._token:
            raise CredentialError(f"{self._path} holds no token: it must be one line of letters and digits")
