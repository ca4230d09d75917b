"""JSON that no decoder accepts: each has the one error that the callers handle."""

from __future__ import annotations

import msgspec
import pytest

from nodeguard.model.json_decoder import JsonDecoder


@pytest.mark.parametrize("text", [b"[" * 100_000, "[" * 100_000, b'["\xff"]', "\ud800", b"", b"{}"])
def test_an_invalid_text_is_a_decode_error(text: bytes | str) -> None:
    with pytest.raises(msgspec.DecodeError):
        JsonDecoder(list[str]).decode(text)


def test_a_skipped_field_and_a_raw_one_may_not_be_nested_deeply_either() -> None:
    deep = b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for schema in (msgspec.defstruct("Empty", []), msgspec.defstruct("Any", [("value", msgspec.Raw)])):
        with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
            JsonDecoder(schema).decode(deep)


def test_a_valid_text_is_decoded() -> None:
    raw = msgspec.json.decode(b'{"value":["a"]}', type=dict[str, msgspec.Raw])["value"]
    assert JsonDecoder(list[str]).decode(raw) == JsonDecoder(list[str]).decode('["a"]') == ["a"]
