"""What msgspec complains of, in a person's words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from nodeguard.config.errors import ConfigError, field_name, parse_field_path
from nodeguard.config.yaml_document import convert, load_yaml
from nodeguard.model.finding import Health


class Condition(Struct, forbid_unknown_fields=True):
    signal: str
    over: float = 0.0
    where: dict[str, tuple[int, ...]] = {}


class Every(Struct, forbid_unknown_fields=True, tag="all"):
    of: tuple[Condition, ...]


class Either(Struct, forbid_unknown_fields=True, tag="any"):
    of: tuple[Condition, ...]


class Check(Struct, forbid_unknown_fields=True):
    id: str
    health: Health
    layer: Literal["InfiniBand", "Ethernet"] | None = None
    when: tuple[Condition, ...] = ()
    join: Every | Either | None = None
    times: Annotated[int, Meta(ge=1)] = 1
    pair: tuple[int, int] = (0, 0)
    after: Annotated[str, Meta(pattern="^[0-9]+s$", examples=["5s", "30s"])] | None = None


class Range(Struct):
    above: int
    to: int

    def __post_init__(self) -> None:
        if self.above > self.to:
            raise ValueError("from above to")


class File(Struct, forbid_unknown_fields=True):
    checks: tuple[Check, ...]


def read(tmp_path: Path, text: str, form: Any = File) -> Any:
    file = tmp_path / "gpu.yaml"
    file.write_text(text)
    return convert(load_yaml(file), form)


def test_what_fits_is_converted(tmp_path: Path) -> None:
    file = read(
        tmp_path, "checks:\n- {id: lost, health: fatal, when: [{signal: a, over: 3}], pair: [1, 2]}\n"
    )
    assert file == File((Check("lost", Health.FATAL, when=(Condition("a", 3.0),), pair=(1, 2)),))


HEAD = "checks:\n- id: lost\n  health: fatal\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "checks:\n- id: lost\n  health: fatl\n",
            "gpu.yaml:3: health: 'fatl' is not valid: use one of ok, warning, suspect, fatal; did you mean fatal?",
        ),
        (
            HEAD + "  layer: infiniband\n",
            "gpu.yaml:4: layer: 'infiniband' is not valid: use one of Ethernet, InfiniBand; did you mean InfiniBand?",
        ),
        ("checks:\n- id: lost\n", "gpu.yaml:2: health: is missing: add it"),
        (
            HEAD + "  when:\n  - {signal: a,\n     ovr: 3}\n",
            "gpu.yaml:6: ovr: is not known here: use one of signal, over, where; did you mean over?",
        ),
        (
            HEAD + "  when:\n  - signal: a\n    over: 1h\n",
            "gpu.yaml:6: over: '1h' does not fit: write a number",
        ),
        ("checks:\n- id: 7\n  health: fatal\n", "gpu.yaml:2: id: 7 does not fit: write text"),
        (HEAD + "  times: true\n", "gpu.yaml:4: times: True does not fit: write a whole number"),
        (HEAD + "  times: 0\n", "gpu.yaml:4: times: 0 does not fit: write a whole number >= 1"),
        (HEAD + "  pair: [1, 2, 3]\n", "gpu.yaml:4: pair: a list does not fit: write a list of length 2"),
        (HEAD + "  pair: [1, x]\n", "gpu.yaml:4: pair[1]: 'x' does not fit: write a whole number"),
        (HEAD + "  when: {signal: a}\n", "gpu.yaml:4: when: a mapping does not fit: write a list"),
        (HEAD + "  layer: 3\n", "gpu.yaml:4: layer: 3 does not fit: write text or nothing"),
        (HEAD + "  times:\n", "gpu.yaml:4: times: nothing does not fit: write a whole number"),
        (
            HEAD + "  when:\n  - signal: a\n    where: {xid: [x]}\n",
            "gpu.yaml:6: xid[0]: 'x' does not fit: write a whole number",
        ),
        (
            HEAD + "  join: {type: none, of: []}\n",
            "gpu.yaml:4: type: 'none' is not valid: use one of all, any",
        ),
        (
            HEAD + "  join: {type: all, of: [{signal: a, x: 1}]}\n",
            "gpu.yaml:4: x: is not known here: use one of signal, over, where",
        ),
        (HEAD + "  after: 5\n", "gpu.yaml:4: after: 5 has no unit: write it like 5s or 30s"),
        (HEAD + "  after: 5m\n", "gpu.yaml:4: after: '5m' does not fit: write it like 5s or 30s"),
        ("- 1\n", "gpu.yaml:1: a list does not fit: write a mapping"),
    ],
)
def test_what_does_not_fit_is_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/{message}"


def test_a_key_that_does_not_fit_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gpu\.yaml:1: a mapping does not fit: write a whole number"):
        read(tmp_path, "one: a\n", dict[int, str])


def test_a_complaint_of_another_kind_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gpu\.yaml:1: from above to: correct it"):
        read(tmp_path, "{above: 2, to: 1}\n", Range)


def test_places_are_read_and_named() -> None:
    assert parse_field_path("$.rows[3].where[...].code") == ("rows", 3, "where", ..., "code")
    assert parse_field_path("$") == ()
    assert field_name(("rows", 3, "v1", 0)) == "v1[0]"
    assert field_name((3, "examples", 1)) == "examples[1]"
    assert field_name(("where", ..., 0)) == "where[...][0]"
    assert field_name((3,)) == ""


def test_a_message_quotes_only_the_ends_of_a_long_text() -> None:
    error = str(ConfigError("racks.csv", 1, "x" * 5000, "y" * 5000, "write `node`"))
    assert error.startswith("racks.csv:1: xxx")
    assert error.endswith("yyy: write `node`")
    assert len(error) < 550
