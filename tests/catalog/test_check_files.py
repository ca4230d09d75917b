"""Files of checks: what they say, and how a wrong one is refused with file, line, field and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.catalog.check_files import CheckFile, check_file_errors, combine_check_files, read_check_file
from nodeguard.config.errors import ConfigError
from nodeguard.model.check import Compare, EventOccurred
from nodeguard.model.finding import Action, Health
from nodeguard.model.signal import Signal
from tests.catalog.test_conditions import SIGNALS

FIELDS = {
    "title": "One is low",
    "target": "gpu",
    "health": "suspect",
    "action": "monitor",
    "when": "{signal: a.level, below: 5}",
    "message": '"it is {a.level}"',
    "remedy": "Look at it.",
    "description": "It means that.",
    "source": "Vendor manual.",
}
EVENT = "{event: a.happened}"
WINDOW = "{event: a.happened, over: 1h}"


def one(name: str | None = "one", **fields: str | None) -> str:
    """A check in YAML: each field in a line of its own, from the second on; None leaves a field out."""
    lines = {**FIELDS, **fields}
    return f"- id: {name}\n" + "".join(
        f"  {field}: {text}\n" for field, text in lines.items() if text is not None
    )


def file(folder: Path, *checks: str, head: str = "family: fam\n", name: str = "a.yaml") -> CheckFile:
    path = folder / name
    path.write_text(head + ("checks:\n" + "".join(checks) if checks else ""))
    return read_check_file(path, SIGNALS)


def refused(folder: Path, *checks: str, head: str = "family: fam\n") -> str:
    with pytest.raises(ConfigError) as caught:
        file(folder, *checks, head=head)
    message = str(caught.value)
    assert message.startswith(f"{folder}/a.yaml:")
    assert "\n" not in message
    return message.removeprefix(f"{folder}/")


def test_a_check(tmp_path: Path) -> None:
    [check] = file(tmp_path, one(), head="family: fam\nhardware: [gpu]\n").checks
    assert (check.id, check.title, check.family, check.targets) == ("one", "One is low", "fam", ("gpu",))
    assert (check.health, check.action) == (Health.SUSPECT, Action.MONITOR)
    assert check.when == Compare("a.level", "below", 5)
    assert (check.message, check.remedy) == ("it is {a.level}", "Look at it.")
    assert (check.cleared_by, check.topologies, check.symptom_of, check.hardware) == ((), (), (), ("gpu",))
    assert check.runbook.endswith("/reference/checks/one.md")


def test_family_can_apply_to_some_targets_only(tmp_path: Path) -> None:
    head = "family: fam\napplies_when: {signal: a.level, above: 1}\n"
    result = file(tmp_path, one(), one("two"), head=head).checks
    assert [check.applies_when for check in result] == [Compare("a.level", "above", 1)] * 2


@pytest.mark.parametrize(
    ("applies", "message"),
    [
        ("{signal: a.levle, is: 1}", "a.yaml:2: signal: 'a.levle' is no signal: nearest are "),
        (
            "{event: a.happened}",
            "a.yaml:2: applies_when: is more than one reading: compare one signal, such as",
        ),
        ("{signal: a.level, is: 1, for: 5m}", "a.yaml:2: applies_when: is more than one reading: "),
    ],
)
def test_what_a_family_is_for_is_one_reading(tmp_path: Path, applies: str, message: str) -> None:
    assert refused(tmp_path, one(), head=f"family: fam\napplies_when: {applies}\n").startswith(message)


def test_a_check_of_events(tmp_path: Path) -> None:
    words: dict[str, str | None] = {
        "cleared_by": "[reset, operator]",
        "topologies": "[rack]",
        "symptom_of": "[two]",
    }
    [check] = file(tmp_path, one(when=EVENT, message='"{code} {count}"', **words)).checks
    assert check.when == EventOccurred("a.happened")
    expected = (("reset", "operator"), ("rack",), ("two",))
    assert (check.cleared_by, check.topologies, check.symptom_of) == expected


def test_an_event_may_be_ended_by_another(tmp_path: Path) -> None:
    [check] = file(tmp_path, one(when="{event: a.happened, until: a.happened}", message='"{code}"')).checks
    assert check.when == EventOccurred("a.happened", until="a.happened")
    message = refused(tmp_path, one(when="{event: a.happened, until: a.level}", cleared_by="[reset]"))
    assert message == "a.yaml:8: until: a.level is a gauge: use `signal` for it"


def test_a_reading_may_say_where_a_check_applies(tmp_path: Path) -> None:
    [check] = file(tmp_path, one(when="{signal: a.level, below: 5, evidence: false}")).checks
    assert check.when == Compare("a.level", "below", 5, evidence=False)


def test_a_check_may_have_several_targets_and_a_family_of_its_own(tmp_path: Path) -> None:
    result = file(tmp_path, one(target="[gpu, node, gpu]", family="own"), one("two"))
    assert [(check.family, check.targets) for check in result.checks] == [
        ("own", ("gpu", "node")),
        ("fam", ("gpu",)),
    ]


def test_a_file_may_hold_nothing_but_what_it_disables(tmp_path: Path) -> None:
    result = file(tmp_path, head="disable: [x, y]\n")
    assert (result.checks, result.disabled) == ((), ("x", "y"))


WRONG: list[tuple[dict[str, str | None], str]] = [
    ({"when": "{signal: a.levle, below: 5}"}, "8: signal: 'a.levle' is no signal: nearest are a.level, "),
    ({"when": "{event: a.level}"}, "8: event: a.level is a gauge: use `signal` for it"),
    ({"when": "{signal: a.happened, is: 1}"}, "8: signal: a.happened is an event: use `event` for it"),
    ({"when": "{signal: a.level, below: 1, above: 2}"}, "8: when: compares a.level 2 times: write exactly"),
    (
        {"when": "{signal: a.level, below: high}"},
        "8: below: 'high' is no number, and `below` compares numbers: write a number",
    ),
    (
        {"when": "{signal: a.level, increases_by: 1, over: 1h}"},
        "8: increases_by: a.level is a gauge, and only counters increase: compare it instead",
    ),
    ({"when": "{signal: a.errors, increases_by: 1}"}, "8: over: is missing: write a window, such as"),
    ({"when": "{signal: a.level, below: 1, for: 5 min}"}, "8: for: '5 min' is no duration: write it "),
    ({"when": "{signal: a.level, below: 1, by: 2}"}, "8: by: moves a reference, and this is a constant: "),
    (
        {"when": "{signal: a.level, below: 1, seen_once: no}"},
        "8: seen_once: 'no' does not fit: write true or",
    ),
    ({"when": "{signal: a.level, below: 1, seen_once: false}"}, "8: seen_once: goes with `for`: add `for`"),
    ({"when": "{signal: a.level, below: {platform: x}}"}, "8: platform: no platform expects 'x': it is one "),
    (
        {"when": "{event: a.happened, times: 65, over: 1h}"},
        "8: times: 65 does not fit: write a whole number ",
    ),
    ({"when": "{event: a.happened, apart: 1m, over: 1h}"}, "8: apart: goes with `times`: add `times`, or "),
    ({"when": "{event: a.happened, where: {x: 1}, over: 1h}"}, "8: x: a.happened has no such field: its fie"),
    ({"when": "{signal: a.level, under: 1}"}, "8: under: is not known here: use one of signal, event, any, "),
    (
        {"when": "\n    any:\n      - {signal: a.level, below: 1}\n      - {signal: a.level, below: x}"},
        "11: below: 'x' is no number, and `below` compares numbers: write a number",
    ),
    (
        {"when": EVENT},
        "3: cleared_by: is missing, and a.happened stays active until something clears it: name what ",
    ),
    (
        {"when": f"{{any: [{EVENT}, {WINDOW}]}}"},
        "3: cleared_by: is missing, and a.happened stays active until something clears it: name what clears it",
    ),
    (
        {"cleared_by": "[reset]"},
        "13: cleared_by: does not go with a check without an event: remove it: the check ends when ",
    ),
    ({"cleared_by": "[prayer]"}, "13: cleared_by[0]: 'prayer' is not valid: use one of "),
    (
        {"message": '"{a.lvl}"'},
        "9: message: names {a.lvl}, which is no signal and no field: name a signal, or one of action, component, ",
    ),
    (
        {"message": '"{a\\nb}"'},
        "9: message: names {a?b}, which is no signal and no field: name a signal, or one ",
    ),
    ({"remedy": '"{code}"'}, "10: remedy: names {code}, which is no signal and no field: name a signal, or "),
    ({"when": "{signal: a.level, at_least: 1e400}"}, "8: at_least: 1e400 is too large for a number: write "),
    ({"when": "{signal: a.level, at_least: 1e30}"}, "8: at_least: 1e+30 is larger than any reading: write "),
    (
        {"when": "{signal: a.errors, increases_by: 1e30, over: 1h}"},
        "8: increases_by: 1e+30 is larger than any reading: write a number of at most 64 bits",
    ),
    ({"when": "{signal: a.level, is: .nan}"}, "8: is: '.nan' is no number, and a.level is a gauge: write a "),
    (
        {"when": "{signal: a.errors, in: [1, high]}"},
        "8: in: 'high' is no number, and a.errors is a counter: ",
    ),
    (
        {"when": "{signal: a.level, is: true}"},
        "8: is: True is no number, and a.level is a gauge: write a num",
    ),
    (
        {"when": "{signal: a.level, below: 1, for: 9999d}"},
        "8: for: 9999d is longer than a node runs without a reboot: write at most 90d",
    ),
    (
        {"when": "{event: a.happened, over: 91d}"},
        "8: over: 91d is longer than a node runs without a reboot: write at most 90d",
    ),
    (
        {"message": '"it is {a.level"'},
        "9: message: has a { that is not part of a {name}: write the name of a ",
    ),
    (
        {"message": '"it is a.level}"'},
        "9: message: has a } that is not part of a {name}: write the name of a ",
    ),
    ({"message": '"it is {{a.level}}"'}, "9: message: has a { that is not part of a {name}: write the name"),
    ({"remedy": '"Look { at {a.level}"'}, "10: remedy: has a { that is not part of a {name}: write the name"),
    (
        {"how": '["nvidia-smi -i {gpu"]'},
        "13: how[0]: has a { that is not part of a {name}: write the name of a value between",
    ),
    (
        {"message": '"{a.level~peer}"'},
        "9: message: names {a.level~peer}, which is no signal and no field: name a signal, or one of action, ",
    ),
    (
        {"message": '"{a.level~}"'},
        "9: message: names {a.level~}, which is no signal and no field: name a signal, or one of action, ",
    ),
    (
        {"message": '"{a.happened}"'},
        "9: message: names {a.happened}, an event, which has no value: name one of action, component, count, ",
    ),
    ({"message": '"{}"'}, "9: message: names {}, which is no signal and no field: name a signal, or one of "),
    (
        {"how": '["nvidia-smi -i {gpu} -e 1", "sudo {reset}"]'},
        "13: how[1]: has {reset} within a command: write {reset} as a command of its own",
    ),
    (
        {"how": '["x -i {device}"]'},
        "13: how[0]: names {device}, which its targets do not have: use one of gpu",
    ),
    ({"health": "ok"}, "7: action: does not go with health ok: write `none`, or `restart-workload`"),
    ({"health": "bad"}, "6: health: 'bad' is not valid: use one of ok, warning, suspect, fatal"),
    ({"target": "rack"}, "5: target: 'rack' is not valid: use one of "),
    ({"target": "[]"}, "5: target: a list does not fit: write "),
    ({"topologies": "[village]"}, "13: topologies[0]: 'village' is not valid: use one of agent, "),
    ({"title": "''"}, "4: title: '' does not fit: write text of length >= 1"),
    ({"source": None}, "3: source: is missing: add it"),
    ({"severity": "high"}, "13: severity: is not known here: use one of id, title, target, "),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_check_is_refused_where_it_is_wrong(
    fields: dict[str, str | None], message: str, tmp_path: Path
) -> None:
    assert refused(tmp_path, one(**fields)).startswith(f"a.yaml:{message}")


@pytest.mark.parametrize("fields", [fields for fields, _ in WRONG], ids=[message for _, message in WRONG])
def test_a_wrong_check_has_one_error(fields: dict[str, str | None], tmp_path: Path) -> None:
    """The field that is left out to find the other errors causes none itself."""
    path = tmp_path / "a.yaml"
    path.write_text("family: fam\nchecks:\n" + one(**fields))
    assert len(check_file_errors(path, SIGNALS)) == 1


def test_the_second_check_of_a_file_is_refused_on_its_own_line(tmp_path: Path) -> None:
    message = refused(tmp_path, one(), one("two", when="{signal: a.levle, below: 5}"))
    assert message.startswith("a.yaml:18: signal: ")


def test_an_id_stands_once_in_a_file(tmp_path: Path) -> None:
    message = refused(tmp_path, one(), one())
    assert message == "a.yaml:13: id: 'one' appears twice: rename or remove one of them"


@pytest.mark.parametrize("name", ["One", "one_two", "one--two", "-one", '"one\\n"', "''", "x" * 64])
def test_an_id_is_a_word(name: str, tmp_path: Path) -> None:
    message = refused(tmp_path, one(name))
    assert ": id: " in message
    assert "write it like gpu-lost or site-fan-speed (lower-case letters and digits, with single" in message


def test_a_family_is_named_somewhere(tmp_path: Path) -> None:
    message = refused(tmp_path, one(), head="description: x\n")
    assert message == "a.yaml:3: family: is missing: write it here, or once for the whole file"


def test_a_sentence_may_name_signals_fields_and_references(tmp_path: Path) -> None:
    message = '"{target} {component} {count} {code} {a.level} {a.level~peers} {a.limit}"'
    [check] = file(tmp_path, one(when=WINDOW, message=message)).checks
    assert "{a.level~peers}" in check.message


# Files together.


def made(
    name: str, *ids: str, disable: tuple[str, ...] = (), folder: Path, **fields: str | None
) -> CheckFile:
    head = f"family: {name}\n" + (f"disable: [{', '.join(disable)}]\n" if disable else "")
    return file(folder, *(one(item, **fields) for item in ids), head=head, name=f"{name}.yaml")


def test_a_later_check_replaces_an_earlier_one_of_its_id(tmp_path: Path) -> None:
    first, second = made("x", "a", "b", folder=tmp_path), made("y", "b", "c", folder=tmp_path)
    checks, disabled = combine_check_files([first, second])
    assert [(check.id, check.family) for check in checks] == [("a", "x"), ("b", "y"), ("c", "y")]
    assert disabled == {}


def test_disabled_check_has_its_file(tmp_path: Path) -> None:
    first = made("x", "a", "b", folder=tmp_path)
    checks, disabled = combine_check_files([first, made("y", disable=("a",), folder=tmp_path)])
    assert [check.id for check in checks] == ["b"]
    assert disabled == {"a": f"{tmp_path}/y.yaml"}


def test_what_a_later_file_brings_back_is_not_disabled(tmp_path: Path) -> None:
    files = [
        made("x", "a", folder=tmp_path),
        made("y", disable=("a",), folder=tmp_path),
        made("z", "a", folder=tmp_path),
    ]
    checks, disabled = combine_check_files(files)
    assert [(check.id, check.family) for check in checks] == [("a", "z")]
    assert disabled == {}


def test_a_file_may_bring_a_check_and_disable_it(tmp_path: Path) -> None:
    assert combine_check_files([made("x", "a", disable=("a",), folder=tmp_path)]) == (
        (),
        {"a": f"{tmp_path}/x.yaml"},
    )


def test_only_what_is_there_can_be_disabled(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        combine_check_files([made("x", "a", disable=("b",), folder=tmp_path)])
    assert str(caught.value) == f"{tmp_path}/x.yaml:2: disable: 'b' is no check: see `nodeguard checks`"


def test_a_symptom_is_one_of_a_check_that_is_there(tmp_path: Path) -> None:
    wanting = made("x", "a", symptom_of="[b]", folder=tmp_path)
    with pytest.raises(ConfigError) as caught:
        combine_check_files([wanting])
    assert str(caught.value) == f"{tmp_path}/x.yaml:3: symptom_of: 'b' is no check: see `nodeguard checks`"
    assert len(combine_check_files([wanting, made("y", "b", folder=tmp_path)])[0]) == 2


def test_a_symptom_of_what_is_disabled_is_none(tmp_path: Path) -> None:
    files = [
        made("x", "a", symptom_of="[b]", folder=tmp_path),
        made("y", "b", disable=("b",), folder=tmp_path),
    ]
    assert [check.id for check in combine_check_files(files)[0]] == ["a"]


def test_the_order_of_independent_files_does_not_matter(tmp_path: Path) -> None:
    files = [made(name, f"{name}-1", f"{name}-2", folder=tmp_path) for name in ("x", "y", "z")]
    assert combine_check_files(files) == combine_check_files(files[::-1])


@pytest.mark.parametrize(
    "when", ["{event: driver.load, over: 1h}", "{event: a.happened, over: 1h, until: driver.load}"]
)
def test_a_sign_is_no_event_of_a_condition(when: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("family: fam\nchecks:\n" + one(when=when))
    signals = SIGNALS | {"driver.load": Signal("driver.load", "event", "loaded")}
    with pytest.raises(ConfigError, match="is a sign, which no condition counts: add driver-reload"):
        read_check_file(path, signals)
