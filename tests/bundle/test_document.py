from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.manifest import mapping, quoted

LINE = "f.yaml: line {}: "


def test_scalars_follow_the_core_schema_of_yaml() -> None:
    text = "a: 1\nb: -2.5\nc: true\nd: ~\ne: 'x'\nf: \"1\"\ng: yes\nh: 2026-11-01T12:00:00Z\ni: 1_0\nj: 0x10\nk: 1e3"
    assert mapping(text.encode(), "f.yaml") == {
        "a": 1,
        "b": -2.5,
        "c": True,
        "d": None,
        "e": "x",
        "f": "1",
        "g": "yes",
        "h": "2026-11-01T12:00:00Z",
        "i": "1_0",
        "j": 16,
        "k": 1000.0,
    }


def test_mappings_and_lists_nest() -> None:
    assert mapping(b"a:\n  b: [1, {c: d}]\n", "f.yaml") == {"a": {"b": [1, {"c": "d"}]}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: &x 1\nb: *x\n", "line 1: a: has an anchor, alias or tag: write the value out"),
        (b"a: 1\na: 2\n", "line 2: a: appears twice: keep one of them"),
        (b"a: !!python/object:os.system x", "line 1: a: has an anchor, alias or tag: "),
        (b"a: [", "line 2: is not valid YAML: did not find expected node content: correct the YAML"),
        (b"a: \x01", "is not valid YAML: unacceptable character #x0001"),
        (b"a: \xff", "line 1: is no UTF-8: save the file as UTF-8"),
        (b"", "line 1: is empty: write `name: value` lines, or remove the file"),
        (b"- 1", "is no mapping: "),
        (b"{}\n---\n{}\n", "line 2: has a second document: keep one document in a file"),
        (b"? [1]\n: 2\n", "line 1: has a key that is no name: write a word"),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(data: bytes, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        mapping(data, "f.yaml")
    assert str(refused.value).startswith(f"f.yaml: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b"{a: " * 250_000, b"- " * 500_000])
def test_a_million_levels_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError, match=r"line 1: (a: )?is nested deeper than 20 levels"):
        mapping(data, "f.yaml")


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(BundleError, match="line 1: a: has an anchor, alias or tag"):
        mapping(bomb.encode(), "f.yaml")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_text_is_parsed_back(key: str, value: str) -> None:
    text = f"{quoted(key[:900])}: {quoted(value)}\n"
    assert mapping(text.encode(), "f.yaml") == {key[:900]: value}
