from __future__ import annotations

import pytest

from nodeguard.aggregator.pages.html import (
    Html,
    check_path,
    domain_path,
    element,
    escape,
    incident_path,
    join,
    link,
    node_path,
)

HOSTILE = """<script>alert("x")</script>'&"""
ESCAPED = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&#x27;&amp;"


def test_texts_are_escaped_as_children_and_as_attributes() -> None:
    assert element("p", HOSTILE, title=HOSTILE) == f'<p title="{ESCAPED}">{ESCAPED}</p>'


def test_html_is_not_escaped_twice() -> None:
    assert element("p", element("b", "<"), escape("&")) == "<p><b>&lt;</b>&amp;</p>"
    assert join((Html("<i></i>"), "<")) == "<i></i>&lt;"


def test_an_operation_of_str_on_html_gives_plain_text() -> None:
    made = element("b", "x") + HOSTILE
    assert element("p", made) == f"<p>&lt;b&gt;x&lt;/b&gt;{ESCAPED}</p>"


def test_attributes_have_names_of_html_and_false_ones_are_left_out() -> None:
    made = element("a", class_="ok", aria_current=False, http_equiv="x", defer=True)
    assert made == '<a class="ok" http-equiv="x" defer></a>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_control_characters_are_removed() -> None:
    assert escape("a\x00b\x1b[31m\nc\u202ed") == "a?b?[31m c?d"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (node_path("gpu-1.eu/../x"), "/nodes/gpu-1.eu%2F..%2Fx"),
        (incident_path('a"b c'), "/incidents/a%22b%20c"),
        (check_path("a/../b?c"), "/checks/a%2F..%2Fb%3Fc"),
        (domain_path("rack/r 7/ü"), "/domains/rack/r%207/%C3%BC"),
        (domain_path("javascript:alert(1)"), "/domains/javascript%3Aalert%281%29"),
    ],
)
def test_names_in_paths_are_quoted(path: str, expected: str) -> None:
    assert path == expected
    assert link(path, "x") == f'<a href="{expected}">x</a>'
