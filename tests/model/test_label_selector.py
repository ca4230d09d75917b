from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.label_selector import LabelSelector, SelectorError, parse_label_selector

NODES = {
    "a": {"pool": "a", "rack": "r1", "topology.kubernetes.io/zone": "z1"},
    "b": {"pool": "b", "rack": "r2", "spare": ""},
    "c": {"rack": "r3"},
}


def selected(text: str) -> str:
    selector = parse_label_selector(text)
    return "".join(name for name, labels in NODES.items() if selector.matches(labels))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "abc"),
        ("  ", "abc"),
        ("pool=a", "a"),
        ("pool==a", "a"),
        (" pool = a ", "a"),
        ("pool!=a", "bc"),
        ("pool", "ab"),
        ("!pool", "c"),
        ("! pool", "c"),
        ("pool in (a,b)", "ab"),
        ("pool in (a)", "a"),
        ("pool in(a,b),rack=r2", "b"),
        ("pool notin (a, b)", "c"),
        ("rack notin (r1),rack notin (r3)", "b"),
        ("topology.kubernetes.io/zone=z1", "a"),
        ("spare=", "b"),
        ("spare=,pool", "b"),
        ("spare in ()", "b"),
        ("spare in (x,)", "b"),
        ("in=x", ""),
    ],
)
def test_a_selector_selects_as_kubectl_does(text: str, names: str) -> None:
    assert selected(text) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "pool=a,",
            "character 8: expected the key of a label, such as pool or topology.kubernetes.io/zone, found the end",
        ),
        (
            ",pool",
            "character 1: expected the key of a label, such as pool or topology.kubernetes.io/zone, found ','",
        ),
        ("pool a", "character 6: expected =, !=, in, notin or a comma, found 'a'"),
        ("pool>3", "character 1: expected the key of a label"),
        ("pool > 3", "character 6: expected =, !=, in, notin or a comma, found '>'"),
        ("pool in a", "character 9: expected '(', found 'a'"),
        ("pool in (a", "character 11: expected ')', found the end"),
        ("pool in (a b)", "character 12: expected ')', found 'b'"),
        ("pool=a b", "character 8: expected ',', found 'b'"),
        (
            "pool=-a",
            "character 6: expected a value of at most 63 letters, digits, '-', '_' and '.', found '-a'",
        ),
        ("pool==!a", "character 7: expected a value"),
        ("!pool=a", "character 6: expected ',', found '='"),
        ("/pool", "character 1: expected the key"),
        ("A_/pool", "character 1: expected the key"),
        ("x/y/z", "character 1: expected the key"),
        ("k" * 64, "character 1: expected the key"),
        (f"k={'v' * 64}", "character 3: expected a value"),
        ("k" * 1025, "has 1024 characters at most: this one has 1025"),
    ],
)
def test_an_error_names_the_place(text: str, problem: str) -> None:
    with pytest.raises(SelectorError) as error:
        parse_label_selector(text)
    assert problem in str(error.value)


@given(st.text(alphabet="ab ,=!()in/.", max_size=24))
def test_every_text_is_a_selector_or_an_error(text: str) -> None:
    with suppress(SelectorError):
        assert isinstance(parse_label_selector(text), LabelSelector)
