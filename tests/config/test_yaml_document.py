"""Reading YAML with positions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import (
    DEPTH_LIMIT,
    SIZE_LIMIT,
    YamlDocument,
    collect_errors,
    convert,
    load_yaml,
    parse_yaml,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checks.yaml"


def written(file: Path, text: str) -> YamlDocument:
    file.write_text(text, encoding="utf-8")
    return load_yaml(file)


def refusal(file: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        written(file, text)
    return caught.value


@pytest.mark.parametrize(
    ("written_as", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-12", -12),
        ("0x1F", 31),
        ("012", "012"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-11-01", "2026-11-01"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        (".inf", ".inf"),
        ("9" * 30, "9" * 30),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|-\n  one\n  two", "one\ntwo"),
    ],
)
def test_scalars_are_what_they_look_like(file: Path, written_as: str, value: Any) -> None:
    read = written(file, f"field: {written_as}\n").data["field"]
    assert read == value
    assert type(read) is type(value)


def test_every_part_has_its_line(file: Path) -> None:
    located = written(file, "# a comment\nrows:\n- {code: 1,\n   name: one}\n-\n  code: 2\nlast: [a, b]\n")
    assert located.data == {"rows": [{"code": 1, "name": "one"}, {"code": 2}], "last": ["a", "b"]}
    assert located.line(()) == 2
    assert located.line(("rows",)) == 2
    assert located.line(("rows", 0, "code")) == 3
    assert located.line(("rows", 0, "name")) == 4
    assert located.line(("rows", 1, "code")) == 6
    assert located.line(("last", 1)) == 7


def test_a_place_may_be_in_the_notation_of_msgspec_and_unknown(file: Path) -> None:
    located = written(file, "rows:\n- code: 1\n- where: {a: 1}\n")
    assert located.line("$.rows[1].where") == 3
    assert located.line("$.rows[0].missing") == 2
    assert located.line("$.rows[1].where[...].deeper") == 3
    assert located.line("$") == 1


def test_an_error_says_file_line_field_problem_and_remedy(file: Path) -> None:
    located = written(file, "health: fatl\nwhere:\n  xid: [79, x]\n")
    error = located.error(("where", "xid", 1), "'x' is no code", "write a number")
    assert str(error) == f"{file}:3: xid[1]: 'x' is no code: write a number"
    assert (error.file, error.line, error.field) == (str(file), 3, "xid[1]")


@pytest.mark.parametrize(
    ("text", "line", "field", "problem"),
    [
        ("a: 1\nb: 1e400\n", 2, "b", "1e400 is too large for a number"),
        ("a: [-1e400]\n", 1, "a[0]", "-1e400 is too large for a number"),
        ("a: &x 1\n", 1, "a", "has an anchor, alias or tag"),
        ("a: 1\nb: *x\n", 2, "b", "has an anchor, alias or tag"),
        ("a:\n- !!python/object:os.system x\n", 2, "a[0]", "has an anchor, alias or tag"),
        ("&x a: 1\n", 1, "", "has an anchor, alias or tag"),
        ("a: 1\n\nb: 2\na: 3\n", 4, "a", "appears twice"),
        ("rows:\n- {x: 1, x: 2}\n", 2, "x", "appears twice"),
        ("a: 1\n? [b]\n: 2\n", 2, "", "has a key that is no name"),
        ("a:\n  true: 1\n", 2, "a", "has a key that is no name"),
        ("a: 1\n---\nb: 2\n", 2, "", "has a second document"),
        ("", 1, "", "is empty"),
        ("# nothing but a comment\n", 2, "", "is empty"),
        ("a: 1\nb: [1, 2\n", 3, "", "did not find expected"),
        ("a: 1\nb: [1, 2", 3, "", "did not find expected"),
        ("a: 1\n\tb: 2\n", 2, "", "found a tab character"),
        ("a: \x01\n", 0, "", "control characters are not allowed"),
        ("a: " + "[" * (DEPTH_LIMIT + 1) + "]" * (DEPTH_LIMIT + 1), 1, "a" + "[0]" * DEPTH_LIMIT, "deeper"),
    ],
)
def test_what_is_no_plain_yaml_is_refused(file: Path, text: str, line: int, field: str, problem: str) -> None:
    error = refusal(file, text)
    assert (error.line, error.field) == (line, field)
    assert problem in error.problem
    assert error.remedy
    assert str(error).startswith(f"{file}:{line}: " if line else f"{file}: ")
    assert "\n" not in str(error)


def test_text_that_is_no_utf8_is_refused(file: Path) -> None:
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"checks\.yaml:2: is no UTF-8: save the file as UTF-8"):
        load_yaml(file)


def test_a_file_that_is_too_large_is_refused(file: Path) -> None:
    assert "larger than" in refusal(file, "#" * (SIZE_LIMIT + 1)).problem
    assert written(file, "a: 1\n".ljust(SIZE_LIMIT)).data == {"a": 1}


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="cannot be read: No such file or directory: check that it is there"
    ):
        load_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory: name a file in it"):
        load_yaml(tmp_path)


def test_yaml_is_not_loaded_before_a_file_is() -> None:
    code = (
        "import sys, nodeguard.catalog.tables, nodeguard.catalog.platforms; sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_keys = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12)
_plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _keys
)
_data = st.recursive(
    _plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4)
)


@given(data=_data)
def test_json_is_read_as_json(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    file = tmp_path_factory.mktemp("json") / "data.yaml"
    located = written(file, json.dumps(data, indent=1))
    assert located.data == data
    lines = file.read_text().count("\n") + 1
    assert all(1 <= line <= lines for line in located.lines.values())


class Item(Struct, forbid_unknown_fields=True):
    name: str
    size: int


class Items(Struct, forbid_unknown_fields=True):
    items: list[Item]
    limit: int = 1


def test_all_errors_are_collected_with_their_lines(file: Path) -> None:
    text = "limit: many\nitems:\n- {name: a, size: big}\n- {name: 1, size: 1}\n- {name: c, size: 1, color: x}\nx: 1\n"
    errors = collect_errors(written(file, text), lambda document: convert(document, Items))
    expected = [(1, "limit"), (3, "size"), (4, "name"), (5, "color"), (6, "x")]
    assert [(error.line, error.field) for error in errors] == expected


def test_an_entry_that_is_invalid_without_its_invalid_field_is_no_second_error(file: Path) -> None:
    def read(document: YamlDocument) -> None:
        for at, row in enumerate(document.data["rows"]):
            if not row:
                raise document.error(("rows", at), "is empty", "write a file")
            raise document.error(("rows", at, "file"), "cannot be read", "create it")

    errors = collect_errors(written(file, "rows:\n- {file: racks.csv}\n"), read)
    assert [(error.field, error.problem) for error in errors] == [("file", "cannot be read")]


def test_a_valid_document_has_no_errors(file: Path) -> None:
    document = written(file, "items: [{name: a, size: 1}]\n")
    assert collect_errors(document, lambda document: convert(document, Items)) == []
    assert document.data == {"items": [{"name": "a", "size": 1}]}


@given(st.lists(st.sampled_from(["{name: a, size: 1}", "{name: 1, size: 1}", "{size: x}"]), max_size=6))
def test_each_invalid_item_has_an_error_on_its_line(items: list[str]) -> None:
    document = parse_yaml(
        ("items:\n" + "".join(f"- {item}\n" for item in items) + "limit: 1\n").encode(), "f"
    )
    errors = collect_errors(document, lambda document: convert(document, Items))
    invalid = [line for line, item in enumerate(items, 2) if item != "{name: a, size: 1}"]
    assert sorted({error.line for error in errors} - {1}) == invalid
