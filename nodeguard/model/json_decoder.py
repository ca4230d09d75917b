"""The decoder of JSON from outside of the process: of responses, stored objects and files."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class JsonDecoder(Generic[T]):
    """Decodes JSON as a type. An invalid text has one error, where msgspec also raises RecursionError for a
    deeply nested text and UnicodeError for one that is not UTF-8.
    """

    def __init__(self, schema: type[T]) -> None:
        self._decode = msgspec.json.Decoder(schema).decode

    def decode(self, text: bytes | str | msgspec.Raw) -> T:
        """Return the decoded text. Raises msgspec.DecodeError."""
        try:
            return self._decode(text)
        except RecursionError:
            raise msgspec.DecodeError("JSON is nested too deeply") from None
        except UnicodeError:
            raise msgspec.DecodeError("JSON is not UTF-8") from None
