from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.printable import escape_unprintable, printable, printable_json

# A color, the same as one character of C1, a line break, a backspace, and a change of the writing direction.
HOSTILE = "a\x1b[31mb\x9b31m\nc\x08\u202ed"

texts = st.text(st.characters(exclude_categories=["Cs"]))
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


def test_control_characters_are_replaced() -> None:
    assert printable(HOSTILE) == "a?[31mb?31m c??d"
    assert printable("Überhitzung, 95 °C") == "Überhitzung, 95 °C"


def test_escapes_keep_the_text_of_json() -> None:
    document = json.dumps(HOSTILE, ensure_ascii=False)
    assert escape_unprintable(document).isprintable()
    assert json.loads(escape_unprintable(document)) == HOSTILE
    assert json.loads(escape_unprintable('"\U0001f600\U000e0001"')) == "\U0001f600\U000e0001"


@given(documents)
def test_strings_of_json_become_printable_and_the_rest_stays(document: Any) -> None:
    for data in (msgspec.json.encode(document), json.dumps(document).encode()):
        assert printable_json(data).decode().isprintable()
        assert json.loads(printable_json(data)) == with_printable_strings(document)


def with_printable_strings(value: Any) -> Any:
    if isinstance(value, list):
        return [with_printable_strings(element) for element in value]
    if isinstance(value, dict):
        return {printable(name): with_printable_strings(field) for name, field in value.items()}
    return printable(value) if isinstance(value, str) else value


@pytest.mark.parametrize("data", [b"", b"{", b'"\\x"', b"\xff", b'"\xff"'])
def test_invalid_json_is_an_error_of_its_decoder(data: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(printable_json(data))
