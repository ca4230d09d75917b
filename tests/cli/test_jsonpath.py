"""Templates of kubectl, with the examples of its documentation."""

from __future__ import annotations

from typing import Any

import pytest

from nodeguard.cli.jsonpath import Template, TemplateError

DOCUMENT: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "a"}},
            "status": {"capacity": {"cpu": "4"}, "gpus": 8, "ready": True, "reason": None},
        },
        {"metadata": {"name": "127.0.0.2"}, "status": {"capacity": {"cpu": "8"}, "gpus": 4, "ready": False}},
    ],
    "users": [{"name": "myself", "user": {}}, {"name": "e2e", "user": {"password": "secret"}}],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{$.kind} {@.kind} {['kind']}", "List List List"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name} {.users[-1].name}", "myself e2e"),
        ("{.users[2].name}", ""),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.user.password)].name}", "e2e"),
        ("{.items[?( @.status.gpus > 4 )].metadata.name}", "127.0.0.1"),
        ("{.items[?(@.status.gpus!=8.0)].metadata.name}", "127.0.0.2"),
        ("{.items[?(@.status.ready==true)].metadata.name}", "127.0.0.1"),
        ('{.items[?(@.status.gpus<"x")].metadata.name}', ""),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] ',
        ),
        (
            '{range .items[*]}{.metadata.name}{"\\t"}{.status.gpus}{"\\n"}{end}',
            "127.0.0.1\t8\n127.0.0.2\t4\n",
        ),
        ("{range .users[*]}{$.kind}{range .user.*}={@}{end} {end}", "List List=secret "),
        (r"{.items[0].metadata.labels.kubernetes\.io/hostname}", "a"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "a"),
        ("{.items[*].metadata.labels.absent}", ""),
        ("{.items[0].status.ready} {.items[0].status.reason}.", "true ."),
        ("{.users[0].*}", "myself {}"),
    ],
)
def test_a_template_is_filled_in(template: str, expected: str) -> None:
    assert Template(template).fill(DOCUMENT) == expected


def test_the_whole_document_is_its_json() -> None:
    assert Template("{.}|{@}|{$}").fill([1, {"a": None}]) == '[1,{"a":null}]' + '|[1,{"a":null}]' * 2


def test_control_characters_of_a_document_are_escaped() -> None:
    assert Template("{.a}\t{.b}").fill({"a": "\x1b[31m\n", "b": {"c": "\u202e"}}) == (
        '\\u001b[31m\\u000a\t{"c":"\\u202e"}'
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (".kind", "template '.kind' has no expression: write it like {.nodes[*].node}"),
        ("{.items[*.name}", "template, character 8: expected }, .name, [*]"),
        ("{.items[*].name", "template, character 16: expected }, .name, [*]"),
        ("a{}", "template, character 3: expected a path such as .nodes[*].node"),
        ("{items}", "template, character 2: expected a path such as .nodes[*].node"),
        ("{.a}{end}", "template, character 6: expected a path"),
        ("{range .items[*]}{.a}", "template, character 22: expected {end}, found its end"),
        ('{.items[?(@.a=="b)].c}', "template, character 8: expected }, .name"),
        ("{..name}", "template, character 2: expected a path"),
    ],
)
def test_an_invalid_template_names_the_position(template: str, expected: str) -> None:
    with pytest.raises(TemplateError) as raised:
        Template(template)
    assert str(raised.value).startswith(expected)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{.nodes[*].name}", "the output has no field 'nodes': its fields are kind, items, users"),
        ("{.items.metadata}", "field 'metadata' is of the items of a list: write [*] before .metadata"),
    ],
)
def test_a_path_that_cannot_fit_is_an_error(template: str, expected: str) -> None:
    with pytest.raises(TemplateError) as raised:
        Template(template).fill(DOCUMENT)
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("template", "document", "expected"),
    [
        ("{.id}", [{"id": 1, "b": 2}], "the output is a list, write it like {[*].id}: its items have id, b"),
        ("{.items[*].id}", [{"id": 1}], "the output is a list, write it like {[*].id}: its items have id"),
        ("{.id}", [], "the output is a list, write it like {[*].id}"),
    ],
)
def test_a_field_of_a_list_is_an_error_with_the_fields_of_its_items(
    template: str, document: list[dict[str, int]], expected: str
) -> None:
    with pytest.raises(TemplateError) as raised:
        Template(template).fill(document)
    assert str(raised.value) == expected
