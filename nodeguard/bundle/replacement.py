"""Replacements of names: one for each name, of the same shape, and not reversible."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Literal

# Characters of a replacement: for a word, letters for letters and digits for digits; for a hexadecimal
# number, any hexadecimal digit; for a decimal number, digits without a leading zero.
Kind = Literal["word", "hex", "number"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_HEX = "0123456789abcdef"

# Networks that documentation uses (RFC 5737), and after those the one for benchmarks (RFC 2544).
_IPV4 = ("192.0.2.{}", "198.51.100.{}", "203.0.113.{}", *(f"198.18.{third}.{{}}" for third in range(256)))
_HOSTS = 254


class Replacements:
    """The replacements of one recording.

    key: from which they are derived; random by default, and stored nowhere.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(32)
        self._made: dict[tuple[Kind, str], str] = {}
        self._used: set[tuple[Kind, str]] = set()
        self._ipv4: dict[str, str] = {}

    def like(self, kind: Kind, original: str) -> str:
        """Return the replacement of a name, with the same length, kinds of characters and capitals."""
        plain = original.lower() if original.isascii() else original
        if (kind, plain) not in self._made:
            made = self._fresh(kind, plain)
            self._made[kind, plain] = made
            self._used.add((kind, made))
        made = self._made[kind, plain]
        if kind != "word":
            # A digit may have become a letter, so that the case applies to the whole.
            return made.upper() if original.isupper() else made
        return "".join(new.upper() if old.isupper() else new for old, new in zip(original, made, strict=True))

    def ipv4(self, original: str) -> str:
        """Return the replacement of an IPv4 address: the next unused address."""
        if original not in self._ipv4:
            network, host = divmod(len(self._ipv4), _HOSTS)
            self._ipv4[original] = _IPV4[network % len(_IPV4)].format(host + 1)
        return self._ipv4[original]

    def _fresh(self, kind: Kind, plain: str) -> str:
        made = plain
        # A name of one digit has only nine replacements, which may all be in use.
        for attempt in range(100):
            noise = self._noise(f"{kind} {attempt} {plain}", len(plain))
            made = "".join(_character(kind, old, byte) for old, byte in zip(plain, noise, strict=True))
            if kind == "number" and made.startswith("0"):
                continue
            if made != plain and (kind, made) not in self._used:
                break
        return made

    def _noise(self, text: str, length: int) -> bytes:
        blocks = range(0, length, 64)
        noise = (blake2b(f"{block} {text}".encode(), key=self._key).digest() for block in blocks)
        return b"".join(noise)[:length]


def _character(kind: Kind, old: str, byte: int) -> str:
    if kind == "hex":
        return _HEX[byte % 16] if old in _HEX else old
    if old.isdigit():
        return _DIGITS[byte % 10]
    return _LETTERS[byte % 26] if old.isalpha() else old
