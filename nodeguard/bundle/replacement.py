"""Names that stand for other names: one for each, of the same shape, and with no way back."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Literal

# What the characters of a replacement may be: of a word, letters for letters and digits for digits; of a
# hexadecimal number, any of its digits; of a decimal number, digits without a leading zero.
Kind = Literal["word", "hex", "number"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_HEX = "0123456789abcdef"

# Networks that documentation uses (RFC 5737), and after those the one for benchmarks (RFC 2544).
_IPV4 = ("192.0.2.{}", "198.51.100.{}", "203.0.113.{}", *(f"198.18.{third}.{{}}" for third in range(256)))
_HOSTS = 254


class Replacements:
    """The replacements of one recording.

    key: what they are made from; random unless given, and kept nowhere.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(32)
        self._made: dict[tuple[Kind, str], str] = {}
        self._given: set[tuple[Kind, str]] = set()
        self._ipv4: dict[str, str] = {}

    def like(self, kind: Kind, original: str) -> str:
        """The replacement of a name, with its length, its kinds of characters and its capitals."""
        plain = original.lower() if original.isascii() else original
        if (kind, plain) not in self._made:
            made = self._fresh(kind, plain)
            self._made[kind, plain] = made
            self._given.add((kind, made))
        made = self._made[kind, plain]
        if kind != "word":
            # A digit may have become a letter, so that capitals are a matter of the whole.
            return made.upper() if original.isupper() else made
        return "".join(new.upper() if old.isupper() else new for old, new in zip(original, made, strict=True))

    def ipv4(self, original: str) -> str:
        """The replacement of an IPv4 address: the next address that nobody has."""
        if original not in self._ipv4:
            network, host = divmod(len(self._ipv4), _HOSTS)
            self._ipv4[original] = _IPV4[network % len(_IPV4)].format(host + 1)
        return self._ipv4[original]

    def _fresh(self, kind: Kind, plain: str) -> str:
        made = plain
        # A name of one digit has nine others, which may all be taken.
        for attempt in range(100):
            noise = self._noise(f"{kind} {attempt} {plain}", len(plain))
            made = "".join(_character(kind, old, byte) for old, byte in zip(plain, noise, strict=True))
            if kind == "number" and made.startswith("0"):
                continue
            if made != plain and (kind, made) not in self._given:
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
